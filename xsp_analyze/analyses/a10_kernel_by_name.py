"""A10: where device time goes, by kernel name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import (
    COUNT,
    COUNTER_COLUMNS,
    DURATION,
    KERNEL_CLASS,
    KERNEL_LABEL,
    KERNEL_NAME,
    KIND,
    MODEL_SHARE,
    STEP,
)
from xsp_analyze.core import FigureSpec, analysis
from xsp_analyze.formulas import ordered_sum, ratio
from xsp_analyze.frames.kernels.activities import counter_sums, derived_counters
from xsp_analyze.frames.kernels.kernel_classes import classes_by_name, kernel_labels
from xsp_analyze.frames.kernels.kernel_means import named_work
from xsp_analyze.frames.kernels.roofline import ideal_intensity
from xsp_analyze.frames.model_time import with_model_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_by_name"]


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
