"""`nsys stats`' summary of the events of OpenMP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.nsys.library_sum import library_sum
from xsp_analyze.analyses.nsys.statistics import name_column, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["openmp_sum"]


@analysis(
    "openmp_sum",
    "OpenMP summary",
    needs=("OpenMP",),
    additive=("share", "total_ns", "count"),
    columns=(
        *time_columns("the durations of the events", "Count"),
        name_column("name", "Kind of event.", "Name"),
    ),
    by_step=False,
)
def openmp_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name, most total time first, then by name."""
    return library_sum(frames.of_trace, "OpenMP")
