"""`nsys recipe` mpi_sum: calls of MPI on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import name_column
from xsp_analyze.analyses.recipes.common import described, described_columns
from xsp_analyze.core import analysis
from xsp_analyze.frames.host_ranges import library_calls

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["mpi_sum"]


@analysis(
    "mpi_sum",
    "MPI calls",
    needs=("MPI",),
    columns=described_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def mpi_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function of MPI, by name; calls without duration are left out."""
    calls = library_calls(frames.of_trace, "MPI")
    return described(calls.select("run_id", "duration_ns", text=pl.col("name").cast(pl.String)), "text")
