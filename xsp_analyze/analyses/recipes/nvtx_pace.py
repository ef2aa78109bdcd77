"""`nsys recipe` nvtx_pace: how regularly each named range comes again on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.recipes.common import closed_ranges
from xsp_analyze.analyses.recipes.pace import pace, pace_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_pace"]


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows, for every range."""
    return pace(view, closed_ranges(view).select("run_id", pl.col("text").alias("name"), "start_ns", "end_ns"))


@analysis(
    "nvtx_pace",
    "Pace of named ranges",
    needs=("ranges",),
    columns=pace_columns("range, whatever its domain"),
    by_step=False,
)
def nvtx_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that ended, by name and run in the file's order; the recipe gives those of one name."""
    return table(frames.of_trace)
