"""`nsys stats`' NVTX range summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import ranges
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    timed = ranges(view).with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return summary(timed, ["range_name", "style"]).sort(-pl.col("total_ns"), maintain_order=True)


@analysis(
    "nvtx_sum",
    "NVTX range summary",
    needs=("ranges",),
    reads={"ranges": ("process_id", "thread_id")},
    columns=(
        *time_columns("the durations of the ranges", "Instances"),
        name_column("style", "PushPop, StartEnd or Annotation.", "Style"),
        name_column("range_name", "Name of the range, after its domain if it has one.", "Range"),
    ),
    by_step=False,
)
def nvtx_sum(frames: StepView) -> pl.LazyFrame:
    """One row a range name and style, most total time first, then by name."""
    return table(frames.of_trace)
