"""`nsys recipe` mpi_gpu_time_util_map: calls of MPI beside kernels, over the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.nsys.statistics import with_runs
from xsp_analyze.analyses.recipes.call_map import call_map, call_map_columns
from xsp_analyze.core import FigureSpec, analysis

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["mpi_gpu_time_util_map"]


@analysis(
    "mpi_gpu_time_util_map",
    "Calls of MPI beside kernels over the capture",
    needs=("MPI", "kernels"),
    columns=call_map_columns("MPI"),
    figure=FigureSpec("bars", x="bin_start_ns", y=("kernel_share", "call_share"), title="MPI and kernels"),
    by_step=False,
)
def mpi_gpu_time_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, process and thirtieth of the longest capture, in that order."""
    return with_runs(frames.of_trace, call_map(frames.of_trace, "MPI"))
