"""Grids of kernels in blocks, also where ROCm's call counted them in threads."""

from __future__ import annotations

import polars as pl

__all__ = ["in_blocks"]

_IN_THREADS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
"""Calls that take the size of the grid in threads (HIP reference, execution control); Kineto writes what they took."""

_SIZES = tuple((pl.col(f"grid_{axis}"), pl.col(f"block_{axis}")) for axis in "xyz")


def in_blocks(kernels: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The staged kernels, in their order, with the grids of those that such a call launched in blocks."""
    names = spans["name"].unique().cast(pl.String)
    calls = names.filter(names.is_in(_IN_THREADS))
    if calls.is_empty():
        return kernels
    launches = spans.filter(pl.col("name").cast(pl.String).is_in(calls.implode()))["correlation_id"]
    launched = spans.filter(pl.col("level") == "kernel", pl.col("correlation_id").is_in(launches.implode()))["row"]
    is_whole = pl.all_horizontal(grid % block == 0 for grid, block in _SIZES)
    is_one = pl.col("row").is_in(launched.implode()) & is_whole
    return kernels.with_columns(pl.when(is_one).then(grid // block).otherwise(grid) for grid, block in _SIZES)
