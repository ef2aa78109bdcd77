"""B17: where device time goes, by class of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import COUNT, COUNTER_COLUMNS, DURATION, KERNEL_CLASS, MODEL_SHARE, STEP
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import ratio, share_of_sum
from xsp_analyze.frames.kernels.activities import counter_sums, derived_counters
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.kernels.roofline import ideal_intensity
from xsp_analyze.frames.model_time import with_model_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_by_class"]


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
