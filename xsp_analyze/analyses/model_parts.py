"""Parts of models: experts (B21, B22), repeated blocks (B28), stages of a prediction (B35), communication (B47)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.classification.experts import ExpertPart, Stage
from xsp_analyze.columns import COUNT, DURATION, KERNEL_DURATION, LATENCY, LAYER_TYPE, MODEL_SHARE, RUN, STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import known_sum, quotient, ratio, share_of_sum
from xsp_analyze.frames.collectives import operations
from xsp_analyze.frames.host_ranges import RunStages, stages_of_runs
from xsp_analyze.frames.kernels.activities import every_span
from xsp_analyze.frames.kernels.expert_parts import PARTS, expert_parts
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.layers.folded_layers import folded_layers, standing_out
from xsp_analyze.frames.model_time import with_model_time
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import intersection, union_length
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "NO_STAGE",
    "SEVERAL_STAGES",
    "UNKNOWN_LAUNCH",
    "communication_by_module",
    "expert_blocks",
    "mixture_of_experts",
    "positions_of_blocks",
    "stages",
]

# B21: what a mixture of experts takes, by part: routing, dispatch, products, combine.

_PART_COLUMNS = {part: f"{part.name.lower()}_ns" for part in ExpertPart}


@analysis(
    "B21",
    "mixture of experts",
    needs=("kernel", "experts"),
    additive=("count", "duration_ns", "expert_share", "device_share", "model_share"),
    read=(
        "The products are the work that is asked for; routing, dispatch and combine are what it costs to spread tokens"
        " over experts. With few tokens a step the rest may take as long as the products."
    ),
    columns=(
        STEP,
        Column(
            "part",
            pl.String(),
            "routing, dispatch, expert products, activation, combine, shared experts; exchange: an all-to-all of which"
            " it is not clear whether it dispatches or combines; other: nothing tells the part.",
            role=Role.KEY,
        ),
        Column("block_count", pl.Int64(), "Blocks that have it; null: no layer tells them apart.", role=Role.LABEL),
        COUNT,
        DURATION,
        Column("expert_share", pl.Float64(), "Of the device time of all parts."),
        Column("device_share", pl.Float64(), "Of all device time."),
        MODEL_SHARE,
    ),
    figure=FigureSpec("bars", x="part", y=("duration_ns",), title="Device time of a mixture of experts by part"),
)
def mixture_of_experts(frames: StepView) -> pl.LazyFrame:
    """One row a part, in the order in which a block runs them; those without work have none."""
    work = frames.once(_expert_work)
    total = (
        frames.once(step_work).group_by(*frames.by, maintain_order=True).agg(pl.col("work_ns").sum().alias("device_ns"))
    )
    blocks = pl.col("block").drop_nulls().n_unique().cast(pl.Int64)
    sums = (
        work.group_by(*frames.by, "part", maintain_order=True)
        .agg(
            pl.when(blocks > 0).then(blocks).alias("block_count"),
            pl.col("work_count").sum().alias("count"),
            pl.col("work_ns").sum().alias("duration_ns"),
        )
        .with_columns(share_of_sum("duration_ns", frames.by).alias("expert_share"))
        .lazy()
    )
    of_all = sums.join(total.lazy(), on=frames.by, how="left") if frames.by else sums.join(total.lazy(), how="cross")
    return (
        with_model_time(frames, of_all)
        .with_columns(
            *(
                pl.when(pl.col(f"{of}_ns") > 0)
                .then(quotient(pl.col("duration_ns"), pl.col(f"{of}_ns")))
                .alias(f"{of}_share")
                for of in ("device", "model")
            ),
        )
        .sort(*frames.by, "part")
        .with_columns(pl.col("part").cast(pl.String))
    )


@analysis(
    "B22",
    "mixture of experts by layer",
    needs=("kernel", "experts"),
    additive=("duration_ns", *_PART_COLUMNS.values()),
    columns=(
        STEP,
        Column("block", pl.String(), "Path of the block; null: work that no layer is known of.", role=Role.KEY),
        DURATION,
        *(Column(name, TIME_NS, f"Of that: {part}.", "ns") for part, name in _PART_COLUMNS.items()),
    ),
    figure=FigureSpec(
        "stacked_bars", x="block", y=tuple(_PART_COLUMNS.values()), title="Device time of each block of experts"
    ),
)
def expert_blocks(frames: StepView) -> pl.LazyFrame:
    """One row a block, in the order in which they first ran, last what belongs to none."""
    work = frames.once(_expert_work)
    of_part = {
        name: pl.col("work_ns").filter(pl.col("part") == str(part)).sum() for part, name in _PART_COLUMNS.items()
    }
    return (
        work.lazy()
        .group_by(*frames.by, "block")
        .agg(pl.col("start_ns").min(), pl.col("work_ns").sum().alias("duration_ns"), **of_part)
        .sort(*frames.by, pl.col("block").is_null(), "start_ns", "block")
        .drop("start_ns")
    )


def _expert_work(frames: StepView) -> pl.DataFrame:
    """The work of the steps chosen that is the experts', with part and block."""
    parts = expert_parts(frames.of_trace).with_columns(pl.col("part").cast(PARTS))
    return frames.once(step_work).join(parts, on="span_id", how="inner", maintain_order="left")


# B28: blocks of layers that a model has several times, each of their positions a row.

_ROW = ("block_index", "position")


def _over(name: str, what: str) -> Column:
    return Column(name, pl.Float64(), f"{what} of the latencies of the layers at this position.", "ns")


@analysis(
    "B28",
    "repeated blocks",
    needs=("layer",),
    about_layers=True,
    additive=("call_count", "latency_ns", "kernel_duration_ns", "model_share"),
    read=(
        "Positions with most latency are what to work on once for all repetitions; an outlier does the same work as"
        " the others in more time, so look at what is different around it."
    ),
    columns=(
        STEP,
        Column("block_index", pl.Int64(), "The block, in order of first call.", role=Role.KEY),
        Column(
            "block",
            pl.String(),
            "What its outermost layers are called: `layers.{0..23}` stands for those from 0 to 23.",
            role=Role.LABEL,
        ),
        Column("position", pl.Int64(), "The layer within the block, in order of first own operator.", role=Role.KEY),
        Column(
            "position_name",
            pl.String(),
            "Names from the block down to the layer, without their numbers; equal ones are counted.",
            role=Role.LABEL,
        ),
        LAYER_TYPE,
        Column("repetition_count", pl.Int64(), "Layers at this position, one of each repetition of the block."),
        Column("call_count", AMOUNT, "Their calls; in a mean step, per step on average."),
        LATENCY,
        _over("median_ns", "Median"),
        _over("min_ns", "Least"),
        _over("max_ns", "Most"),
        Column(
            "outlier",
            pl.String(),
            "The layer with most, if it is above the median by more than 10 % and 3.5 times the median distance to it.",
            role=Role.LABEL,
        ),
        Column("outlier_excess", pl.Float64(), "By which part of the median the outlier is above it."),
        KERNEL_DURATION,
        MODEL_SHARE,
    ),
    figure=FigureSpec(
        "bars",
        x="position_name",
        y=("latency_ns",),
        title="Latency by position of repeated blocks",
        color="block",
        top=30,
    ),
)
def positions_of_blocks(frames: StepView) -> pl.LazyFrame:
    """One row a block and position, in order. Layers outside all blocks are in no row: A02 has them.

    Sums are those of A02 and A11 over the layers of the position.
    """
    latency = pl.col("latency_ns")
    rows = (
        folded_layers(frames)
        .group_by(*frames.by, *_ROW, maintain_order=True)
        .agg(
            pl.col("block", "position_name").first(),
            pl.col("position_type").first().alias("layer_type"),
            pl.len().cast(pl.Int64).alias("repetition_count"),
            known_sum(pl.col("call_count")),
            latency.median().cast(pl.Float64).alias("median_ns"),
            latency.min().cast(pl.Float64).alias("min_ns"),
            latency.max().cast(pl.Float64).alias("max_ns"),
            *standing_out(latency),
            known_sum(latency),
            known_sum(pl.col("kernel_duration_ns")),
        )
    )
    return (
        with_model_time(frames, rows.lazy())
        .with_columns(ratio(latency, pl.col("model_ns")).alias("model_share"))
        .sort(*frames.by, *_ROW)
    )


# B35: pre-processing, inference and post-processing beside each other.

SEVERAL_STAGES = "several at once"
NO_STAGE = "outside of stages"
UNKNOWN_LAUNCH = "launch not recorded"
_MAX_NAMES = 5
_NUMBER = r"[ :#_-]*\d+$"  # of a batch or step


@analysis(
    "B35",
    "stages of a prediction",
    needs=("stages",),
    read=(
        "A model that is fast leaves the time to what is around it: compare inference with what is done before and"
        " behind it, and look at the time in which no stage was open."
    ),
    additive=("exclusive_ns", "share", "device_sum_ns", "device_share"),
    section="stages",
    by_step=False,
    columns=(
        RUN,
        Column("stage", pl.String(), "pre-process, inference, post-process, or what is none of these.", role=Role.KEY),
        Column("range_names", pl.String(), "Ranges that it was told by, most time first.", role=Role.LABEL),
        Column("range_count", pl.Int64(), "How many ranges; null: no range marks it."),
        Column("host_sum_ns", pl.Int64(), "Sum of their durations, those in them included.", "ns"),
        Column("mean_ns", pl.Float64(), "Mean duration of a range.", "ns"),
        Column("max_ns", pl.Int64(), "The longest.", "ns"),
        Column(
            "wall_ns",
            pl.Int64(),
            "Time in which at least one of them was open; on one thread a stage inside of another takes its time.",
            "ns",
        ),
        Column("exclusive_ns", pl.Int64(), "Of that, while no other stage was open on any thread.", "ns"),
        Column("share", pl.Float64(), "exclusive_ns over the time from the first stage's begin to the last one's end."),
        Column("device_count", pl.Int64(), "Device activities launched in it."),
        Column("device_sum_ns", pl.Int64(), "Sum of their durations.", "ns"),
        Column("device_busy_ns", pl.Int64(), "Time in which at least one of them ran, whenever that was.", "ns"),
        Column("device_share", pl.Float64(), "device_sum_ns over that of all device work of the run."),
    ),
    figure=FigureSpec("bars", x="stage", y=("exclusive_ns", "device_sum_ns"), title="Stages of a prediction"),
)
def stages(frames: StepView) -> pl.LazyFrame:
    """One row a stage of each run in their order, then overlap, time outside of them, and work of unknown launches."""
    runs = frames.of_trace.once(stages_of_runs)
    rows = [{"run_id": run.run_id, **row} for run in runs for row in _rows(run)]
    schema = {c.name: c.type_of(averaged=False) for c in stages.columns}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return (table if len(runs) > 1 else table.drop("run_id")).lazy()


def _rows(run: RunStages) -> Iterator[dict[str, Any]]:
    begin, until = run.window
    several = union_length(*run.several)
    every = union_length(
        np.concatenate([start for start, _ in run.unions.values()]),
        np.concatenate([end for _, end in run.unions.values()]),
    )
    for stage in Stage:
        ranges = run.ranges.filter(stage=str(stage))
        if ranges.height:
            union = run.unions[stage]
            wall, shared = union_length(*union), union_length(*intersection(union, run.several))
            yield _row(run, str(stage), wall - shared) | _of_ranges(ranges) | {"wall_ns": wall}
    if several:
        yield _row(run, SEVERAL_STAGES, several) | {"wall_ns": several}
    yield _row(run, NO_STAGE, until - begin - every) | {"wall_ns": until - begin - every}
    if not run.work["has_launch"].all():
        yield _row(run, UNKNOWN_LAUNCH, None)


def _row(run: RunStages, stage: str, exclusive_ns: int | None) -> dict[str, Any]:
    begin, until = run.window
    share = exclusive_ns / (until - begin) if exclusive_ns is not None and until > begin else None
    return {"stage": stage, "exclusive_ns": exclusive_ns, "share": share, **_of_device(run, stage)}


def _of_ranges(ranges: pl.DataFrame) -> dict[str, Any]:
    duration = ranges["duration_ns"]
    name = pl.col("name").str.replace(_NUMBER, "")
    by_name = ranges.group_by(name).agg(pl.col("duration_ns").sum())
    by_name = by_name.sort("duration_ns", "name", descending=[True, False])
    names = by_name["name"].to_list()
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return {
        "range_names": ", ".join(names[:_MAX_NAMES]) + more,
        "range_count": ranges.height,
        "host_sum_ns": duration.sum(),
        "mean_ns": duration.mean(),
        "max_ns": duration.max(),
    }


def _of_device(run: RunStages, stage: str) -> dict[str, Any]:
    """What was launched in the stage; null where that cannot be: of overlaps, and where no device work was recorded."""
    if run.work.is_empty() or stage == SEVERAL_STAGES:
        return {}
    is_launched = pl.col("has_launch")
    where = {
        NO_STAGE: pl.col("stage").is_null() & is_launched,
        UNKNOWN_LAUNCH: pl.col("stage").is_null() & ~is_launched,
    }.get(stage, pl.col("stage") == stage)
    work = run.work.filter(where)
    total, own = int(run.work["duration_ns"].sum()), int(work["duration_ns"].sum())
    end = work["start_ns"] + work["duration_ns"]
    return {
        "device_count": work.height,
        "device_sum_ns": own,
        "device_busy_ns": union_length(work["start_ns"].to_numpy(), end.to_numpy()),
        "device_share": own / total if total else None,
    }


# B47: communication by the module that it is for, and what for: sharded weights, gradients, parts of a product.

_HOOK = r"^FSDP::(\w+)(?: .*)?\((\S+)\)$"
_BEFORE = ("pre_forward", "pre_backward")
_USES = {"all_gather": "sharded weights", "reduce_scatter": "sharded gradients", "all_reduce": "sharded gradients"}


@analysis(
    "B47",
    "communication by module",
    needs=("communication",),
    additive=("count", "duration_ns", "exposed_ns"),
    read=(
        "Weights that are gathered one module ahead, and gradients, can hide behind compute; what a module's own work"
        " waits for (tensor parallel) cannot, unless work is split."
    ),
    columns=(
        STEP,
        Column(
            "module", pl.String(), "Path as FSDP's hook names it, else the module or range; null: none.", role=Role.KEY
        ),
        Column("phase", pl.String(), "forward, backward, ...", role=Role.KEY),
        Column("operation", pl.String(), "all_gather, reduce_scatter, ..., as in B08.", role=Role.KEY),
        Column(
            "use",
            pl.String(),
            "sharded weights or gradients: a hook of FSDP calls it; within a layer: its own work waits for it, as in"
            " tensor parallel; gradients: backward, of no layer; exchange: of tokens or embeddings; stages of a"
            " pipeline; other.",
            role=Role.KEY,
        ),
        Column("count", pl.Float64(), "Calls of a rank."),
        Column("duration_ns", pl.Float64(), "Their time on a rank, mean over ranks.", "ns"),
        Column("exposed_ns", pl.Float64(), "Of that, while nothing computed.", "ns"),
        Column("hidden_share", pl.Float64(), "The rest of it, over it."),
        Column("bytes", pl.Float64(), "What a rank hands over; null: not recorded.", "byte"),
        Column(
            "modules_ahead",
            pl.Float64(),
            "Of gathered weights: modules that began from the call to the module's own turn, mean; 0: not ahead.",
        ),
    ),
    figure=FigureSpec("stacked_bars", x="module", y=("exposed_ns",), title="Exposed communication by module", top=30),
)
def communication_by_module(frames: StepView) -> pl.LazyFrame:
    """One row a module, phase, operation and use, longest first, then by name."""
    rows = frames.of_chosen_steps(frames.once(_used_collectives))
    keys = ("module", "phase", "operation", "use")
    sums = ("count", "duration_ns", "exposed_ns", "bytes")
    counted = rows.with_columns(pl.lit(1, pl.Int64).alias("count"), pl.col("input_bytes").alias("bytes"))
    per_step = counted.group_by("run_id", "step", *keys, maintain_order=True).agg(
        *(pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()).alias(c) for c in sums)
    )
    ranks = rows["rank"].n_unique()
    ahead = rows.group_by(*frames.by, *keys).agg(pl.col("modules_ahead").mean())
    return (
        frames.combine(per_step, keys, sums)
        .with_columns(quotient(pl.col(c), max(ranks, 1)) for c in sums)
        .join(ahead, on=[*frames.by, *keys], how="left", nulls_equal=True)
        .with_columns((1 - ratio(pl.col("exposed_ns"), pl.col("duration_ns"))).alias("hidden_share"))
        .sort(*frames.by, -pl.col("duration_ns"), *keys, nulls_last=True)
        .lazy()
    )


def _used_collectives(frames: StepView) -> pl.DataFrame:
    """`operations` with module, phase, use and, of weights that a hook gathers, modules_ahead."""
    rows = frames.of_trace.once(operations)
    spans = every_span(frames.trace, "run_id", "parent_id", "layer_id", "phase", "name", "start_ns")
    hooks = spans["name"].cast(pl.String).str.contains(_HOOK).to_numpy()
    calls = rows["call_id"].to_numpy()
    around = innermost(spans["parent_id"].fill_null(-1).to_numpy(), hooks)[calls]
    names = spans["name"].gather(nullable_index(around)).cast(pl.String)
    of_root = spans["name"].cast(pl.String).str.starts_with("FSDP::").to_numpy()  # whose hooks name no path
    is_hooked = innermost(spans["parent_id"].fill_null(-1).to_numpy(), of_root)[calls] >= 0
    layers = frames.trace.frame("layers").filter(pl.col("source").cast(pl.String) != "operator")
    layers = layers.select(pl.col("span_id").alias("layer_id"), "path")
    layer = spans[calls].select("layer_id").join(layers, on="layer_id", how="left", maintain_order="left")["path"]
    described = rows.with_columns(
        names.str.extract(_HOOK, 2).alias("hooked"), layer.cast(pl.String).alias("layer"),
        spans["phase"].gather(calls).cast(pl.String).alias("phase"), pl.Series("at", around),
    )  # fmt: skip
    operation, in_layer = pl.col("operation"), pl.col("layer").is_not_null()
    use = (
        pl.when(pl.Series(is_hooked)).then(operation.replace_strict(_USES, default="other", return_dtype=pl.String))
        .when(operation.is_in(["send", "recv", "send_recv"])).then(pl.lit("stages of a pipeline"))
        .when(operation.is_in(["all_to_all", "dispatch", "combine"])).then(pl.lit("exchange"))
        .when(in_layer).then(pl.lit("within a layer"))
        .when(pl.col("phase") == "backward").then(pl.lit("gradients")).otherwise(pl.lit("other"))
    )  # fmt: skip
    ahead = pl.Series("modules_ahead", _modules_ahead(spans, hooks, around), dtype=pl.Float64)
    is_weights = pl.col("use") == "sharded weights"
    return described.with_columns(pl.coalesce("hooked", "layer").alias("module"), use.alias("use"), ahead).with_columns(
        pl.when(is_weights).then("modules_ahead").alias("modules_ahead")
    )


def _modules_ahead(spans: pl.DataFrame, hooks: Bools, around: Ints) -> list[float | None]:
    """Of each call in the hook `around` it the hooks before a module's turn from there to its own module's."""
    before = spans.with_row_index("at").filter(pl.Series(hooks)).with_columns(
        pl.col("name").cast(pl.String).str.extract(_HOOK, 1).alias("hook"),
        pl.col("name").cast(pl.String).str.extract(_HOOK, 2).alias("path"),
    )  # fmt: skip
    turns = {
        run: (rows["start_ns"].to_numpy(), rows["path"].to_list())
        for (run,), rows in before.filter(pl.col("hook").is_in(_BEFORE)).sort("start_ns").group_by("run_id")
    }
    own = dict(zip(before["at"], before.select("run_id", "path", "start_ns").rows(), strict=True))
    return [_ahead(own[int(at)], turns) if at >= 0 else None for at in around]


def _ahead(hook: tuple[Any, ...], turns: Mapping[Any, tuple[Ints, list[str]]]) -> float | None:
    run, path, start_ns = hook
    starts, paths = turns.get(run, (np.zeros(0, np.int64), []))
    first = int(np.searchsorted(starts, start_ns, side="right"))
    if first and paths[first - 1] == path:
        return 0.0
    later = (number for number, other in enumerate(paths[first:]) if other == path)
    turn = next(later, None)
    return None if turn is None else float(turn + 1)
