"""`nsys stats`' CUDA GPU memory operation summary by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies
from xsp_analyze.analyses.nsys.statistics import deviation, integer, name_column
from xsp_analyze.core import Column, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_mem_size_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    size = pl.col("bytes")
    rows = (
        copies(view)
        .group_by("operation")
        .agg(
            size.sum().alias("total_bytes"),
            pl.len().cast(pl.Int64).alias("count"),
            size.mean().alias("mean_bytes"),
            size.median().alias("median_bytes"),
            size.min().alias("min_bytes"),
            size.max().alias("max_bytes"),
            deviation(size).alias("std_bytes"),
        )
    )
    return rows.sort(-pl.col("total_bytes"), "operation")


def _size(name: str, dtype: pl.DataType, doc: str, header: str) -> Column:
    return Column(f"{name}_bytes", dtype, doc, "byte", header=f"{header} (MB)", decimals=3)


@analysis(
    "cuda_gpu_mem_size_sum",
    "CUDA GPU memory operations by size",
    needs=("copies",),
    additive=("total_bytes", "count"),
    reads={"copies": ("name",)},
    columns=(
        _size("total", pl.Int64(), "Sum of the bytes copied or filled.", "Total"),
        integer("count", "How many there were.", "Count"),
        _size("mean", pl.Float64(), "Mean size.", "Avg"),
        _size("median", pl.Float64(), "Median size.", "Med"),
        _size("min", pl.Int64(), "Smallest size.", "Min"),
        _size("max", pl.Int64(), "Largest size.", "Max"),
        _size("std", pl.Float64(), "Sample standard deviation of the sizes (0 for a single one).", "StdDev"),
        name_column("operation", "Kind of copy, or memset.", "Operation"),
    ),
    by_step=False,
)
def cuda_gpu_mem_size_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kind of copy or memset, most bytes first, then by name."""
    return table(frames.of_trace)
