"""`nsys recipe` nccl_gpu_proj_sum: NCCL's calls projected onto the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import name_column
from xsp_analyze.analyses.recipes.collectives import collective_range
from xsp_analyze.analyses.recipes.common import closed_ranges, described, described_columns
from xsp_analyze.analyses.recipes.projected import project
from xsp_analyze.core import analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nccl_gpu_proj_sum"]

_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows."""
    rows = project(view, closed_ranges(view).filter(collective_range()), _KINDS)
    timed = rows.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return described(timed.filter(pl.col("duration_ns") > 0), "text")


@analysis(
    "nccl_gpu_proj_sum",
    "NCCL calls on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=described_columns(
        name_column("text", "Name of the call.", "Text"),
        "the times from the first start to the last end of the work launched in a call",
    ),
    by_step=False,
)
def nccl_gpu_proj_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges that launched work, by name."""
    return table(frames.of_trace)
