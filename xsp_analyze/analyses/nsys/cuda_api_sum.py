"""`nsys stats`' CUDA API summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import call_times, printed_api_name
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_api_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows; calls are told apart by the name as recorded, of which less is printed."""
    rows = summary(call_times(view), ["name"]).sort(-pl.col("total_ns"), maintain_order=True)
    return rows.with_columns(printed_api_name())


@analysis(
    "cuda_api_sum",
    "CUDA API summary",
    needs=("runtime",),
    key=(),  # versions of a function, which the name as printed does not tell apart
    additive=("share", "total_ns", "count"),
    reads={"calls": ("name",)},
    columns=(
        *time_columns("the durations of the calls", "Num Calls"),
        name_column("name", "Name of the function; versions of it are rows of their own.", "Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_api_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function, most total time first, then by its name as recorded."""
    return table(frames.of_trace)
