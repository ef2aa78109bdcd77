"""`nsys stats`' CUDA GPU memory operation summary by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_mem_time_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    return summary(copies(view), ["operation"]).sort(-pl.col("total_ns"), maintain_order=True)


@analysis(
    "cuda_gpu_mem_time_sum",
    "CUDA GPU memory operations by time",
    needs=("copies",),
    additive=("share", "total_ns", "count"),
    reads={"copies": ("name",)},
    columns=(
        *time_columns("the durations of the operations", "Count"),
        name_column("operation", "Kind of copy, or memset.", "Operation"),
    ),
    by_step=False,
)
def cuda_gpu_mem_time_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kind of copy or memset, most total time first, then by name."""
    return table(frames.of_trace)
