"""`nsys stats`' summary of NVTX start/end ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.nsys.nvtx_pushpop_sum import table_of_style
from xsp_analyze.analyses.nsys.statistics import name_column, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["nvtx_startend_sum"]


@analysis(
    "nvtx_startend_sum",
    "NVTX start/end range summary",
    needs=("ranges",),
    reads={"ranges": ("process_id", "thread_id")},
    columns=(
        *time_columns("the durations of the ranges", "Instances"),
        name_column("range_name", "Name of the range, after its domain if it has one.", "Range"),
    ),
    by_step=False,
)
def nvtx_startend_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of ranges that were started and ended, most total time first, then by name."""
    return table_of_style(frames.of_trace, "StartEnd")
