"""`nsys recipe` nccl_sum: NCCL's calls on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import name_column
from xsp_analyze.analyses.recipes.collectives import collective_range
from xsp_analyze.analyses.recipes.common import closed_ranges, described, described_columns
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nccl_sum"]


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows."""
    calls = closed_ranges(view).filter(collective_range())
    timed = calls.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return described(timed.filter(pl.col("duration_ns") > 0), "text")


@analysis(
    "nccl_sum",
    "NCCL calls",
    needs=("ranges",),
    columns=described_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def nccl_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges, by name; ranges without duration are left out."""
    return table(frames.of_trace)
