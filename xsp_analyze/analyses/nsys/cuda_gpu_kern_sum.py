"""`nsys stats`' CUDA GPU kernel summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import kernel_times
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_kern_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    return summary(kernel_times(view), ["name"]).sort(-pl.col("total_ns"), "count", "name", maintain_order=True)


@analysis(
    "cuda_gpu_kern_sum",
    "CUDA GPU kernel summary",
    needs=("kernels",),
    additive=("share", "total_ns", "count"),
    reads={"kernels": ("name",)},
    columns=(
        *time_columns("the durations of the kernels", "Instances"),
        name_column("name", "Name of the kernel.", "Name"),
    ),
    by_step=False,
)
def cuda_gpu_kern_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name, most total time first, then fewest instances, then by name."""
    return table(frames.of_trace)
