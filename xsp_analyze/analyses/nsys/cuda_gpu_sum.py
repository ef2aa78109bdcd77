"""`nsys stats`' CUDA GPU summary: kernels, copies and memsets in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies, kernel_times
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import Role, analysis
from xsp_analyze.needs import AnyOf

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["OPERATION_COLUMNS", "cuda_gpu_sum", "device_operations", "summed"]

_KERNEL, _MEMORY = "CUDA_KERNEL", "MEMORY_OPER"
OPERATION_COLUMNS = (
    name_column("category", "CUDA_KERNEL, MEMORY_OPER or CUDA_API.", "Category", role=Role.LABEL),
    name_column("operation", "Name of the kernel or function, or kind of copy, or memset.", "Operation"),
)


def device_operations(view: TraceView) -> pl.LazyFrame:
    """One row an operation: its name, category and duration_ns."""
    worked = kernel_times(view).select(pl.col("name").cast(pl.String).alias("operation"), "duration_ns")
    moved = copies(view).select("operation", "duration_ns")
    return pl.concat(
        [worked.with_columns(category=pl.lit(_KERNEL)), moved.with_columns(category=pl.lit(_MEMORY))],
    )


def summed(operations: pl.LazyFrame) -> pl.LazyFrame:
    """One row a name, as nsys has it: one that two categories share stands under one of them."""
    of_name = operations.group_by("operation").agg(pl.col("category").min())
    rows = summary(operations, ["operation"]).join(of_name, on="operation", how="left", maintain_order="left")
    return rows.sort(-pl.col("total_ns"), maintain_order=True)


@analysis(
    "cuda_gpu_sum",
    "CUDA GPU summary",
    needs=(AnyOf("kernels", "copies"),),
    additive=("share", "total_ns", "count"),
    reads={"kernels": ("name",), "copies": ("name",)},
    columns=(*time_columns("the durations of the operations", "Instances"), *OPERATION_COLUMNS),
    by_step=False,
)
def cuda_gpu_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel's name or kind of copy, or memset, most total time first, then by name."""
    return summed(device_operations(frames.of_trace))
