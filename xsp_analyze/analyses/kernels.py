"""Kernels: each (A08), by name (A10), by layer (A11), by class (B17), and the waves that they run in (B26)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.columns import (
    BOUND_COLUMNS,
    COUNT,
    COUNTER_COLUMNS,
    DURATION,
    EXECUTION,
    KERNEL_CLASS,
    KERNEL_DURATION,
    KERNEL_LABEL,
    KERNEL_NAME,
    KERNELS,
    KIND,
    LAYER_INDEX,
    LAYER_LATENCY,
    LAYER_NAME,
    LAYER_TYPE,
    MODEL_SHARE,
    NON_KERNEL,
    STEP,
)
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import ordered_sum, ratio, share_of_sum
from xsp_analyze.frames.group_ids import group_ids, in_order, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import (
    AXES,
    attribution_bases,
    counter_sums,
    derived_counters,
    shapes_at,
    with_bounds,
)
from xsp_analyze.frames.kernels.kernel_classes import classes_by_name, kernel_labels
from xsp_analyze.frames.kernels.kernel_means import kernel_executions, launches_alone, named_work
from xsp_analyze.frames.kernels.kernel_waves import CONFIGURATION, launch_configurations
from xsp_analyze.frames.kernels.measured_work import layer_kernels
from xsp_analyze.frames.kernels.roofline import ideal_intensity
from xsp_analyze.frames.model_time import with_model_time
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Ints

__all__ = [
    "kernel_by_class",
    "kernel_by_layer",
    "kernel_by_name",
    "kernel_information",
    "kernel_waves",
    "list_of_kernels",
    "order_of_list",
]

# A08: every kernel execution, with its layer and launch configuration.

_LABELS = (
    "layer_name",
    "layer_type",
    "kernel_name",
    "kernel_class",
    "kind",
    "phase",
    "attribution",
    "attribution_basis",
)
_LIST_ORDER = (
    "layer_index",
    "layer_name",
    "run_id",
    "process_id",
    "order_ns",
    "start_ns",
    "device_id",
    "stream_id",
    "kernel_name",
    "duration_ns",
)


def _launch_size(what: str) -> Column:
    return Column(
        what, pl.List(pl.Int64()), f"{what.capitalize()} size along x, y, z; null: unknown, or none.", role=Role.LABEL
    )


@analysis(
    "A08",
    "kernel information",
    needs=("counted kernels",),
    additive=("count", "duration_ns", "flop_count", "dram_read_bytes", "dram_write_bytes"),
    read=(
        "Every piece of device work with its layer and launch configuration; search for a layer or a kernel to "
        "see what ran in it and in which order."
    ),
    columns=(
        STEP,
        EXECUTION,
        replace(LAYER_INDEX, role=Role.LABEL),
        LAYER_NAME,
        LAYER_TYPE,
        replace(KERNEL_NAME, role=Role.LABEL),
        KERNEL_LABEL,
        KERNEL_CLASS,
        replace(KIND, role=Role.LABEL),
        _launch_size("grid"),
        _launch_size("block"),
        Column("phase", pl.String(), "forward, recompute, backward, optimizer or other.", role=Role.LABEL),
        Column("attribution", pl.String(), "Why it has a layer, or has none.", role=Role.LABEL),
        Column(
            "attribution_basis",
            pl.String(),
            "How the layer is known, where it is not that around the launch: graph_node, graph_capture, aligned, "
            "annotation or compiled_code.",
            role=Role.LABEL,
        ),
        Column("run_id", pl.Int64(), "The run (rank) it ran in.", role=Role.LABEL),
        Column("device_id", pl.Int64(), "The device it ran on.", role=Role.LABEL),
        Column("stream_id", pl.Int64(), "The stream it ran on.", role=Role.LABEL),
        Column("count", AMOUNT, "1; in a mean step, the share of steps that it is in."),
        Column(
            "duration_ns",
            TIME_NS,
            "Its duration; in a mean step, the trimmed mean over the steps that it is in, times `count`.",
            "ns",
        ),
        *COUNTER_COLUMNS,
        *BOUND_COLUMNS,
    ),
)
def kernel_information(frames: StepView) -> pl.LazyFrame:
    """One row a kernel execution, by layer (none: last), then in order of launch."""
    rows = order_of_list(frames)
    return list_of_kernels(frames, frames.once(kernel_executions)[rows], np.arange(len(rows)))


def order_of_list(frames: StepView) -> Ints:
    """The rows of `frames.executions` in the order in which they are listed."""
    return in_order([frames.once(kernel_executions)[c] for c in (*frames.by, *_LIST_ORDER)])


def list_of_kernels(frames: StepView, executions: pl.DataFrame, number: Ints) -> pl.LazyFrame:
    """These rows of `frames.executions` as this analysis lists them; `number`: their places in the list."""
    shown = executions.with_columns(
        pl.Series("execution", number),
        pl.col("duration_ns").alias("counted_ns"),
        kernel_labels(executions),
        attribution_bases(frames.trace, executions["span_id"]),
        *shapes_at(frames.trace, executions),
    )
    if not frames.of_trace.once(launches_alone).is_empty():  # a launch says when, and not for how long
        shown = shown.with_columns(pl.lit(None, shown.schema["duration_ns"]).alias("duration_ns"))
    return derived_counters(
        with_bounds(frames.trace, shown).lazy(), frames.of_trace.once(ideal_intensity)
    ).with_columns(pl.col(_LABELS).cast(pl.String))


# A10: where device time goes, by kernel name.


@analysis(
    "A10",
    "kernels by name",
    needs=("kernel",),
    additive=("count", "duration_ns", "model_share", "flop_count", "dram_read_bytes", "dram_write_bytes"),
    section="kernels",
    read=(
        "The first rows are where device time is; many calls of a short kernel point to launches, few calls of a "
        "long one to the kernel itself."
    ),
    columns=(
        STEP,
        KERNEL_NAME,
        KIND,
        KERNEL_LABEL,
        replace(KERNEL_CLASS, doc="What it does, by its name alone: whoever launched it (see A08, B17)."),
        COUNT,
        DURATION,
        MODEL_SHARE,
        *COUNTER_COLUMNS,
    ),
    figure=FigureSpec(
        "bars", x="kernel_name", y=("duration_ns",), title="Device time by kernel name", color="kind", top=20
    ),
)
def kernel_by_name(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name and kind, longest first, then by name."""
    sums = (
        frames.once(named_work)
        .group_by(*frames.by, "kernel_name", "kind", maintain_order=True)
        .agg(ordered_sum(pl.col("count")), ordered_sum(pl.col("duration_ns")), *counter_sums(frames.once(named_work)))
        .with_columns(pl.col("kernel_name", "kind").cast(pl.String))
    )
    named = sums.with_columns(kernel_labels(sums), classes_by_name(sums)).lazy()
    return (
        derived_counters(with_model_time(frames, named), frames.of_trace.once(ideal_intensity))
        .with_columns(ratio(pl.col("duration_ns"), pl.col("model_ns")).alias("model_share"))
        .sort(*frames.by, -pl.col("duration_ns"), "kernel_name", "kind")
    )


# A11: device time of each layer beside its latency.


@analysis(
    "A11",
    "kernels by layer",
    needs=("layer", "kernel"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=(
        "layer_latency_ns",
        "kernel_count",
        "kernel_duration_ns",
        "non_kernel_ns",
        "flop_count",
        "dram_read_bytes",
        "dram_write_bytes",
    ),
    read="Where kernel duration is much less than the layer's latency, the device waited in that layer.",
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LAYER_LATENCY,
        KERNELS,
        KERNEL_DURATION,
        NON_KERNEL,
        *COUNTER_COLUMNS,
    ),
)
def kernel_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order; graph replays that no layer can be given for come last, in a row without index."""
    return derived_counters(layer_kernels(frames), frames.of_trace.once(ideal_intensity))


# B17: where device time goes, by class of kernels.


@analysis(
    "B17",
    "kernels by class",
    needs=("kernel",),
    additive=(
        "count",
        "duration_ns",
        "device_share",
        "model_share",
        "flop_count",
        "dram_read_bytes",
        "dram_write_bytes",
    ),
    read=(
        "What kind of work takes the device's time: a model that is not mostly matrix products, convolutions and"
        " attention has something to win in what stands above them."
    ),
    columns=(
        STEP,
        replace(KERNEL_CLASS, role=Role.KEY),
        COUNT,
        DURATION,
        Column("device_share", pl.Float64(), "Of the device time of all classes."),
        MODEL_SHARE,
        *COUNTER_COLUMNS,
    ),
    figure=FigureSpec("bars", x="kernel_class", y=("duration_ns",), title="Device time by class of kernels"),
)
def kernel_by_class(frames: StepView) -> pl.LazyFrame:
    """One row a class of kernels, copies and memsets, longest first, then by name."""
    work = frames.once(kernel_executions)
    sums = (
        work.group_by(*frames.by, pl.col("kernel_class").cast(pl.String), maintain_order=True)
        .agg(pl.col("count").sum(), pl.col("duration_ns").sum(), *counter_sums(work))
        .with_columns(share_of_sum("duration_ns", frames.by).alias("device_share"))
        .lazy()
    )
    return (
        derived_counters(with_model_time(frames, sums), frames.of_trace.once(ideal_intensity))
        .with_columns(ratio(pl.col("duration_ns"), pl.col("model_ns")).alias("model_share"))
        .sort(*frames.by, -pl.col("duration_ns"), "kernel_class")
    )


# B26: how the blocks of kernels fill the device: waves, occupancy, and the time that it may cost.

_ROW = ("kernel_name", *CONFIGURATION, "device_name", "multiprocessor_count")


def _size(what: str) -> Column:
    return Column(what, pl.List(pl.Int64()), f"{what.capitalize()} size along x, y, z; null: unknown.", role=Role.KEY)


@analysis(
    "B26",
    "kernel waves and occupancy",
    needs=("kernel", "grids"),
    key=("kernel_name", "grid", "block", *CONFIGURATION[len(AXES) :], "device_name", "multiprocessor_count"),
    additive=("count", "duration_ns", "tail_ns", "unused_ns"),
    read=(
        "Few waves of which the last is nearly empty cost a kernel time, and a grid with fewer blocks than the device "
        "has multiprocessors leaves the rest idle, whatever the occupancy."
    ),
    columns=(
        STEP,
        KERNEL_NAME,
        KERNEL_LABEL,
        replace(KERNEL_CLASS, doc="What it does, by its name alone: whoever launched it (see A08, B17)."),
        _size("grid"),
        _size("block"),
        Column(
            "device_name", pl.String(), "The device, where it is not the same for all.", role=Role.KEY, optional=True
        ),
        COUNT,
        replace(DURATION, doc="Sum of the durations of these kernels; in a mean step, of the step."),
        Column("waves", pl.Float64(), "Blocks over what all multiprocessors hold at once; null: unknown."),
        Column(
            "limited_by",
            pl.String(),
            "What keeps more blocks from a multiprocessor: warps, blocks, registers, shared memory; grid where all "
            "run at once.",
            role=Role.LABEL,
        ),
        Column(
            "tail_ns",
            pl.Float64(),
            "Estimate: time that it would not take if its last wave were as full as the others; 0 in a single wave.",
            "ns",
        ),
        Column(
            "unused_ns", pl.Float64(), "Estimate: its time times the part of the multiprocessors without a block.", "ns"
        ),
        Column(
            "theoretical_occupancy",
            pl.Float64(),
            "Warps that a multiprocessor holds of it at once over the most possible, 0 to 1.",
        ),
        Column(
            "achieved_occupancy",
            pl.Float64(),
            "Active warps over the most possible by counters, weighted by duration; null: not measured.",
        ),
        Column("blocks", pl.Int64(), "Blocks of the grid."),
        Column("blocks_per_multiprocessor", pl.Float64(), "Blocks over multiprocessors."),
        Column("resident_blocks", pl.Int64(), "The most blocks that a multiprocessor holds at once."),
        Column("full_waves", pl.Int64(), "Waves that fill the device."),
        Column("last_wave_empty_share", pl.Float64(), "Of the last wave, the part without blocks; 0: it is full."),
        Column("multiprocessor_count", pl.Int64(), "Multiprocessors of the device; null: unknown."),
        Column("registers_per_thread", pl.Int64(), "Registers each thread used; null: unknown."),
        Column("shared_bytes", pl.Int64(), "Shared memory of a block; null: unknown.", "byte"),
    ),
    figure=FigureSpec(
        "bars", x="kernel_label", y=("tail_ns", "unused_ns"), title="Time lost, as estimated", color="grid", top=20
    ),
)
def kernel_waves(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name, launch configuration and device, longest first, then by name and configuration."""
    rows = _by_configuration(frames)
    several = rows.select("device_name", "multiprocessor_count").n_unique() > 1
    shown = rows.with_columns(
        kernel_labels(rows),
        classes_by_name(rows),
        *(_together(what, AXES[at : at + 3]) for at, what in ((0, "grid"), (3, "block"))),
        (pl.col("duration_ns") * pl.col("tail_share")).alias("tail_ns"),
        (pl.col("duration_ns") * pl.col("unused_share")).alias("unused_ns"),
    )
    order = [*frames.by, -pl.col("duration_ns"), *(name for name in _ROW)]
    return shown.lazy().sort(order, nulls_last=True).drop(() if several else "device_name")


def _together(what: str, axes: tuple[str, ...]) -> pl.Expr:
    return pl.when(pl.all_horizontal(pl.col(axes).is_not_null())).then(pl.concat_list(axes)).alias(what)


def _by_configuration(frames: StepView) -> pl.DataFrame:
    """The kernels chosen in rows of _ROW (and step): count, duration, occupancy by counters, and how they fill it."""
    kernels = frames.once(kernel_executions).filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    number, configurations = launch_configurations(frames.trace, kernels)
    alike, first = numbers_by_appearance(*group_ids([*kernels.select(*frames.by, "kernel_name"), pl.Series(number)]))
    sums = (
        kernels.with_columns(pl.Series("alike", alike))
        .group_by("alike", maintain_order=True)
        .agg(pl.col("count", "duration_ns").sum(), *counter_sums(kernels))
        .select("count", "duration_ns", "achieved_occupancy")
    )
    names = kernels.select(*frames.by, pl.col("kernel_name", "kind").cast(pl.String))[first]
    return pl.concat([names, configurations[number[first]], sums], how="horizontal")
