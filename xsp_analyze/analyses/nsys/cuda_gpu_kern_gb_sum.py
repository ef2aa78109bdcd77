"""`nsys stats`' CUDA GPU kernel summary with grid and block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels
from xsp_analyze.analyses.nsys.statistics import name_column, summary, time_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_kern_gb_sum"]

_SIZES = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
_WIDTH = 4


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    rows = summary(kernels(view), ["name", *_SIZES])
    return (
        rows.with_columns(_extents("grid"), _extents("block"))
        .sort(-pl.col("total_ns"), "count", "name", maintain_order=True)
        .drop(_SIZES)
    )


def _extents(what: str) -> pl.Expr:
    """The three sizes as nsys prints them, each right-aligned to four characters."""
    padded = [pl.col(f"{what}_{axis}").fill_null(0).cast(pl.String).str.pad_start(_WIDTH) for axis in "xyz"]
    return pl.concat_str(padded, separator=" ").alias(what)


@analysis(
    "cuda_gpu_kern_gb_sum",
    "CUDA GPU kernel summary by grid and block",
    needs=("kernels",),
    additive=("share", "total_ns", "count"),
    columns=(
        *time_columns("the durations of the kernels", "Instances"),
        name_column("grid", "Grid size along x, y and z.", "GridXYZ"),
        name_column("block", "Block size along x, y and z.", "BlockXYZ"),
        name_column("name", "Name of the kernel.", "Name"),
    ),
    by_step=False,
)
def cuda_gpu_kern_gb_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name, grid and block; most total time first, then fewest instances, then by name."""
    return table(frames.of_trace)
