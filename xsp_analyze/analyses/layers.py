"""Layers: time and memory (A02-A04), types (A05-A07), metrics (A12), bounds (B45), GPU share (A13), host time (B43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import (
    ALLOCATED,
    BOUND_COLUMNS,
    FILLED_COLUMNS,
    KERNEL_DURATION,
    LATENCY,
    LAYER_INDEX,
    LAYER_LATENCY,
    LAYER_NAME,
    LAYER_TYPE,
    MODEL_SHARE,
    NON_KERNEL,
    STEP,
    TYPE_KEY,
    WORK_BASIS,
)
from xsp_analyze.core import AMOUNT, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import known_sum, ordered_sum, quotient, ratio, share_of_sum
from xsp_analyze.frames.kernels.activities import counter_sums, with_bounds
from xsp_analyze.frames.kernels.kernel_means import layer_executions
from xsp_analyze.frames.kernels.measured_work import layer_kernels
from xsp_analyze.frames.layers.layer_time import (
    LAYER_KEY,
    layer_intervals,
    layer_latencies,
    layer_quartiles,
    layers_and_others,
    parts_of_host_time,
)
from xsp_analyze.frames.model_time import with_model_time
from xsp_model.vocabulary import AVERAGED, STALLS

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "bounds_of_layers",
    "gpu_share_by_layer",
    "layer_information",
    "layer_latency",
    "layer_latency_by_type",
    "layer_memory",
    "layer_memory_by_type",
    "layer_type_distribution",
    "metrics_by_layer",
    "parts_of_time_on_host",
]

# A02: what each layer is, how long it takes and what it allocates.


@analysis(
    "A02",
    "layer information",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("call_count", "latency_ns", "model_share", "allocated_bytes"),
    read=(
        "Sort by latency to see which layers matter, and look at the interval before you trust a difference "
        "between two of them."
    ),
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        Column("path", pl.String(), "Names from the outermost enclosing layer down to it.", role=Role.LABEL),
        Column("shapes", pl.String(), "Input shapes of its first operator, as JSON; null: unknown.", role=Role.LABEL),
        Column("dtypes", pl.String(), "Input types of its first operator, as JSON; null: unknown.", role=Role.LABEL),
        Column("call_count", AMOUNT, "Its calls; in a mean step, per step on average."),
        LATENCY,
        Column(
            "low_ns", pl.Float64(), "Lower end of the 95 % bootstrap interval of latency; null below 3 steps.", "ns"
        ),
        Column("high_ns", pl.Float64(), "Upper end of that interval.", "ns"),
        MODEL_SHARE,
        ALLOCATED,
    ),
)
def layer_information(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator; on the host alone last what is of none, as optimizers."""
    rows = frames.once(layers_and_others).join(
        layer_intervals(frames), on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    return (
        with_model_time(frames, rows.lazy())
        .with_columns(
            pl.col("layer_name", "layer_type", "path").cast(pl.String),
            ratio(pl.col("latency_ns"), pl.col("model_ns")).alias("model_share"),
        )
        .sort(*frames.by, *LAYER_KEY, nulls_last=True)
    )


# A03: latency of each layer and its spread over steps.


def _spread(name: str, what: str) -> Column:
    return Column(name, pl.Float64(), f"{what} over steps (of all runs); null where no steps are averaged.", "ns")


@analysis(
    "A03",
    "layer latency",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("latency_ns",),
    read=(
        "Tall bars are the layers to work on; a wide gap between minimum and maximum says that a layer's time "
        "changes from step to step."
    ),
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LATENCY,
        _spread("min_ns", "Least"),
        _spread("q1_ns", "First quartile"),
        _spread("median_ns", "Median"),
        _spread("q3_ns", "Third quartile"),
        _spread("max_ns", "Most"),
    ),
    figure=FigureSpec(
        "bars",
        x="layer_index",
        y=("latency_ns",),
        title="Latency by layer",
        color="layer_type",
        spread=("min_ns", "q1_ns", "q3_ns", "max_ns"),
    ),
)
def layer_latency(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator."""
    rows = frames.once(layer_latencies).join(layer_quartiles(frames), on=LAYER_KEY, how="left", nulls_equal=True)
    return (
        rows.lazy()
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .sort(*frames.by, *LAYER_KEY, nulls_last=True)
    )


# A04: memory that each layer allocates.


@analysis(
    "A04",
    "layer memory",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("allocated_bytes",),
    read=(
        "Tall bars are the layers whose activations fill the memory; they are the candidates for checkpointing or "
        "for a smaller batch."
    ),
    columns=(STEP, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, ALLOCATED),
    figure=FigureSpec(
        "bars", x="layer_index", y=("allocated_bytes",), title="Memory allocated by layer", color="layer_type"
    ),
)
def layer_memory(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator."""
    return frames.once(layer_latencies).lazy().with_columns(pl.col("layer_name", "layer_type").cast(pl.String))


# A05: how many layers there are of each type.


@analysis(
    "A05",
    "layer type distribution",
    needs=("layer",),
    about_layers=True,
    additive=("count", "share"),
    read="How often each type of layer occurs; compare with A06, as a frequent type need not be an expensive one.",
    columns=(
        STEP,
        TYPE_KEY,
        Column("count", pl.Int64(), "Layers of the type, however often each was called."),
        Column("share", pl.Float64(), "Of all layers."),
    ),
    figure=FigureSpec("bars", x="layer_type", y=("count",), title="Layers by type"),
)
def layer_type_distribution(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, most frequent first, then by name."""
    return (
        frames.once(layer_latencies)
        .lazy()
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String))
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .with_columns(share_of_sum("count", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("count"), "layer_type")
    )


# A06: latency of the layers of each type.


@analysis(
    "A06",
    "layer latency by type",
    needs=("layer",),
    about_layers=True,
    additive=("latency_ns", "share"),
    read="The longest bar is the type of layer that is worth a better kernel, a fusion or another precision first.",
    columns=(STEP, TYPE_KEY, LATENCY, Column("share", pl.Float64(), "Of the sum over all layers.")),
    figure=FigureSpec("bars", x="layer_type", y=("latency_ns",), title="Latency by layer type"),
)
def layer_latency_by_type(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, longest first, then by name; on the host alone also optimizers, input, other backward."""
    return (
        frames.once(layers_and_others)
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String), maintain_order=True)
        .agg(ordered_sum(pl.col("latency_ns")))
        .lazy()
        .with_columns(share_of_sum("latency_ns", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("latency_ns"), "layer_type")
    )


# A07: memory that the layers of each type allocate.


@analysis(
    "A07",
    "layer memory by type",
    needs=("layer",),
    about_layers=True,
    additive=("allocated_bytes", "share"),
    read="The longest bar is the type of layer that holds most of the memory allocated.",
    columns=(STEP, TYPE_KEY, ALLOCATED, Column("share", pl.Float64(), "Of the sum over all layers.")),
    figure=FigureSpec("bars", x="layer_type", y=("allocated_bytes",), title="Memory allocated by layer type"),
)
def layer_memory_by_type(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, most memory first, unknown last, then by name."""
    return (
        frames.once(layer_latencies)
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String), maintain_order=True)
        .agg(known_sum(pl.col("allocated_bytes")).alias("allocated_bytes"))
        .lazy()
        .with_columns(share_of_sum("allocated_bytes", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("allocated_bytes"), "layer_type", nulls_last=True)
    )


# A12: flop and memory traffic of each layer, as counters measured them or else as modelled.


@analysis(
    "A12",
    "metrics by layer",
    needs=("layer", "counted kernels", "work"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("flop_count", "dram_read_bytes", "dram_write_bytes"),
    read=(
        "Compare flops with bytes: a layer with much traffic and few flops is bound by memory; where counters tell,"
        " stall_reason is what its warps wait for."
    ),
    columns=(
        *(STEP, LAYER_INDEX, LAYER_NAME, LAYER_TYPE),
        *(*FILLED_COLUMNS[:4], WORK_BASIS, *BOUND_COLUMNS),
    ),
    figure=FigureSpec(
        "bars",
        x="layer_index",
        y=("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy"),
        title="Flops, DRAM traffic and occupancy by layer",
    ),
)
def metrics_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order; graph replays that no layer can be given for come last, in a row without index."""
    return with_bounds(frames.trace, layer_kernels(frames, filled=True).collect()).lazy()


# B45: what kernels of layers and of their types are held up by, as counters tell.


@analysis(
    "B45",
    "what bounds layers",
    needs=("layer", "kernel", "bounds"),
    key=("scope", "layer_index", "layer_name", "layer_type"),
    read="The highest stall share says what the warps wait for; where utilisation is high, that part is the limit.",
    columns=(
        STEP,
        Column("scope", pl.String(), "type: all layers of a type; layer: each.", role=Role.KEY),
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        KERNEL_DURATION,
        Column("counted_share", pl.Float64(), "Part of that time in kernels of which the counters are known."),
        *BOUND_COLUMNS,
        *(
            Column(name, pl.Float64(), f"Part of the cycles of warps in which they wait for {what}; mean by time.")
            for name, what in STALLS.items()
        ),
    ),
)
def bounds_of_layers(frames: StepView) -> pl.LazyFrame:
    """One row a type of layer, most device time first, then one a layer in order."""
    work = frames.once(layer_executions).filter(pl.col("layer_index").is_not_null())
    time = pl.col("duration_ns")
    measured = pl.any_horizontal(pl.col(c for c in AVERAGED if c in work.columns).is_not_null())
    sums = (
        *counter_sums(work),
        time.sum().alias("kernel_duration_ns"),
        time.filter(measured).sum().alias("measured_ns"),
        pl.col("span_id").sort_by(-time, "span_id").first(),
    )
    types = work.group_by(*frames.by, "layer_type", maintain_order=True).agg(sums)
    types = types.sort(*frames.by, -pl.col("kernel_duration_ns"), pl.col("layer_type").cast(pl.String))
    layers = work.group_by(*frames.by, *LAYER_KEY, maintain_order=True).agg(sums).sort(*frames.by, *LAYER_KEY)
    rows = pl.concat(
        [types.with_columns(scope=pl.lit("type")), layers.with_columns(scope=pl.lit("layer"))], how="diagonal_relaxed"
    ).with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
    covered = ratio(pl.col("measured_ns"), pl.col("kernel_duration_ns")).alias("counted_share")
    return with_bounds(frames.trace, rows).lazy().with_columns(covered)


# A13: how much of each layer is device time, and how much is not.


@analysis(
    "A13",
    "GPU and non-GPU latency by layer",
    needs=("layer", "kernel"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("layer_latency_ns", "kernel_duration_ns", "non_kernel_ns"),
    read="A layer whose GPU share is small spends its time elsewhere: in launches, in synchronisation or in Python.",
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LAYER_LATENCY,
        KERNEL_DURATION,
        NON_KERNEL,
        Column("kernel_share", pl.Float64(), "Kernel duration over layer latency; above 1 where kernels outlast it."),
        Column("non_kernel_share", pl.Float64(), "What is left of 1; negative where kernels outlast the layer."),
    ),
    figure=FigureSpec(
        "stacked_bars",
        x="layer_index",
        y=("kernel_share", "non_kernel_share"),
        title="GPU and non-GPU share of each layer's latency",
    ),
)
def gpu_share_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order."""
    latency, kernels = pl.col("layer_latency_ns"), pl.col("kernel_duration_ns")
    return (
        layer_kernels(frames)
        .filter(latency.is_not_null())
        .with_columns(pl.when(latency > 0).then(quotient(kernels, latency)).alias("kernel_share"))
        .with_columns((1 - pl.col("kernel_share")).alias("non_kernel_share"))
    )


# B43: what the host's time is made of where no device worked.


@analysis(
    "B43",
    "parts of host time",
    needs=("layer", "host alone"),
    section="types",
    additive=("duration_ns", "model_share"),
    read="The longest phase is where to look first, in it the types of layers that take most of it.",
    columns=(
        STEP,
        Column(
            "phase",
            pl.String(),
            "forward, recompute, backward or optimizer; input: the next batch is waited for;"
            " communication: calls of process groups; other: nothing tells.",
            role=Role.KEY,
        ),
        Column(
            "layer_type",
            pl.String(),
            "The type of layer, or the phase where it is of none; null: what is left of the time.",
            role=Role.KEY,
        ),
        Column("duration_ns", pl.Float64(), "Host time outside of the layers inside them.", "ns"),
        MODEL_SHARE,
    ),
    figure=FigureSpec("bars", x="layer_type", y=("duration_ns",), color="phase", title="What host time is made of"),
)
def parts_of_time_on_host(frames: StepView) -> pl.LazyFrame:
    """One row a phase and type of layer, phases in order, longest first; they sum to the model's latency.

    Where threads work side by side they can be more. A mean step is the mean over those that the trimmed mean keeps.
    """
    rows = with_model_time(frames, frames.once(parts_of_host_time).lazy())
    return rows.with_columns(ratio(pl.col("duration_ns"), pl.col("model_ns")).alias("model_share"))
