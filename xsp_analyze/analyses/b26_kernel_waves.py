"""B26: how the blocks of kernels fill the device: waves, occupancy, and the time that it may cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import COUNT, DURATION, KERNEL_CLASS, KERNEL_LABEL, KERNEL_NAME, STEP
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import AXES, counter_sums
from xsp_analyze.frames.kernels.kernel_classes import classes_by_name, kernel_labels
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.kernels.kernel_waves import CONFIGURATION, launch_configurations
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_waves"]

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
