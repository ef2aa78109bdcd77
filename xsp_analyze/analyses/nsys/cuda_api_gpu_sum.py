"""`nsys stats`' CUDA summary: calls, kernels, copies and memsets in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.cuda_gpu_sum import OPERATION_COLUMNS, device_operations, summed
from xsp_analyze.analyses.nsys.sources import call_times, printed_api_name
from xsp_analyze.analyses.nsys.statistics import time_columns
from xsp_analyze.core import analysis
from xsp_analyze.needs import AnyOf

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["cuda_api_gpu_sum"]


@analysis(
    "cuda_api_gpu_sum",
    "CUDA summary",
    needs=(AnyOf("kernels", "copies", "runtime"),),
    additive=("share", "total_ns", "count"),
    reads={"kernels": ("name",), "copies": ("name",), "calls": ("name",)},
    columns=(*time_columns("the durations of the calls and operations", "Instances"), *OPERATION_COLUMNS),
    by_step=False,
)
def cuda_api_gpu_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function, kernel's name or kind of copy, or memset, most total time first, then by name."""
    called = call_times(frames.of_trace).with_columns(pl.col("name").cast(pl.String))
    named = called.select(printed_api_name().alias("operation"), "duration_ns", category=pl.lit("CUDA_API"))
    return summed(pl.concat([device_operations(frames.of_trace), named]))
