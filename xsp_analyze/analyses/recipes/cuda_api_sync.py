"""`nsys analyze` rule and `nsys recipe` cuda_api_sync: calls in which the host waits for a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import api_calls
from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.recipes.common import on_source_clock
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_api_sync"]

_CALLS = r"(?i)^cuda(Device|Stream)Synchronize"


def table(view: TraceView) -> pl.LazyFrame:
    """The rule's rows."""
    calls = api_calls(view).filter(pl.col("name").str.contains(_CALLS))
    stamped = on_source_clock(view, calls, ("start_ns",))
    return stamped.sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id")


@analysis(
    "cuda_api_sync",
    "Calls that wait for a device",
    needs=("runtime",),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=(
        integer("duration_ns", "Duration of the call.", "Duration (ns)", unit="ns"),
        integer("start_ns", "Its start, on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("thread_id", "The thread.", "TID", role=Role.KEY),
        name_column("name", "The call as recorded.", "API Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_api_sync(frames: StepView) -> pl.LazyFrame:
    """One row a call of cudaDeviceSynchronize or cudaStreamSynchronize, longest first."""
    return table(frames.of_trace)
