"""`nsys recipe` cuda_gpu_kern_pace: how regularly each kernel comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels
from xsp_analyze.analyses.recipes.pace import pace, pace_columns
from xsp_analyze.analyses.recipes.short_name import short_name
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_kern_pace"]


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows, for every kernel."""
    rows = kernels(view).sort("run_id", "start_ns", "span_id").select(
        "run_id", short_name("name"), "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )  # fmt: skip
    return pace(view, rows)


@analysis(
    "cuda_gpu_kern_pace",
    "Pace of kernels",
    needs=("kernels",),
    columns=pace_columns("kernel, without namespaces, template arguments and parameters", device=True),
    by_step=False,
)
def cuda_gpu_kern_pace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel, by name and run in order of start; the recipe gives those of one name."""
    return table(frames.of_trace)
