"""Calls that hold up the host, as rules of `nsys analyze` and recipes find them: waits, copies and fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import api_calls, copies, launches, on_source_clock
from xsp_analyze.analyses.nsys.statistics import bytes_column, integer, name_column
from xsp_analyze.core import Column, Role, analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_api_sync", "cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync"]


def _work_of_calls(view: TraceView, work: pl.LazyFrame, calls: pl.Expr) -> pl.LazyFrame:
    """The copies or fills whose call's name is such, longest first, times as the profiler stamped them."""
    launched = launches(view, work).filter(calls)
    stamped = on_source_clock(view, launched, ("start_ns",))
    nothing = pl.lit(None, dtype=pl.Int64).alias("green_context_id")
    return stamped.with_columns(nothing).sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id", "call_id")


def _synchronous(function: str) -> pl.Expr:
    """Whether the call is of these functions, and not of their asynchronous variants."""
    name = pl.col("call_name")
    return name.str.contains(f"(?i)^{function}") & ~name.str.contains("(?i)async")


def _timing(what: str) -> tuple[Column, ...]:
    """Columns for when the work ran."""
    return (
        integer("duration_ns", f"Duration of the {what} on the device.", "Duration (ns)", unit="ns"),
        integer("start_ns", "Its start, on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
    )


_LOCATION: tuple[Column, ...] = (
    bytes_column("bytes", "Bytes copied or filled.", "Bytes (MB)"),
    integer("process_id", "The process.", "PID", role=Role.KEY),
    integer("device_id", "The device.", "Device ID", role=Role.KEY),
    integer("context_id", "The context.", "Context ID", role=Role.LABEL),
    integer("green_context_id", "Not in our model, so always unknown.", "Green Context ID", role=Role.LABEL),
    integer("stream_id", "The stream.", "Stream ID", role=Role.KEY),
    name_column("call_name", "The call as recorded.", "API Name", role=Role.LABEL),
)


_COPY: tuple[Column, ...] = (
    *_timing("copy"),
    name_column("source_kind", "Memory read from.", "Src Kind", role=Role.LABEL),
    name_column("destination_kind", "Memory written to.", "Dst Kind", role=Role.LABEL),
    *_LOCATION,
)


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
    view = frames.of_trace
    calls = api_calls(view).filter(pl.col("name").str.contains(r"(?i)^cuda(Device|Stream)Synchronize"))
    stamped = on_source_clock(view, calls, ("start_ns",))
    return stamped.sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id")


@analysis(
    "cuda_memcpy_async",
    "Asynchronous copies with pageable memory",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=_COPY,
    by_step=False,
)
def cuda_memcpy_async(frames: StepView) -> pl.LazyFrame:
    """One row a copy that was asked for asynchronously and reads or writes pageable host memory, longest first."""
    view = frames.of_trace
    pageable = pl.any_horizontal(pl.col("source_kind", "destination_kind") == "Pageable")
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, pageable)
    return _work_of_calls(view, moved, pl.col("call_name").str.contains(r"(?i)^cudaMemcpy.*Async"))


_SMALL_BYTES = 64_000  # the rule says 64 KB


@analysis(
    "cuda_memcpy_sync",
    "Synchronous copies",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=_COPY,
    by_step=False,
)
def cuda_memcpy_sync(frames: StepView) -> pl.LazyFrame:
    """One row a copy for which the host waited, copies of at most 64,000 bytes to a device left out; longest first.

    nsys also leaves out peer copies within one device, which our model does not tell from others.
    """
    view = frames.of_trace
    small = (pl.col("bytes") <= _SMALL_BYTES) & (pl.col("copy_kind") == "Host-to-Device")
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, ~small)
    return _work_of_calls(view, moved, _synchronous("cudaMemcpy"))


@analysis(
    "cuda_memset_sync",
    "Synchronous memsets",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=(
        *_timing("fill"),
        name_column("destination_kind", "Memory filled: Pinned or Managed.", "Memory Kind", role=Role.LABEL),
        *_LOCATION,
    ),
    by_step=False,
)
def cuda_memset_sync(frames: StepView) -> pl.LazyFrame:
    """One row a fill of pinned or managed memory for which the host waited, longest first."""
    view = frames.of_trace
    filled = copies(view).filter(pl.col("kind") == Kind.MEMSET, pl.col("destination_kind").is_in(["Pinned", "Managed"]))
    return _work_of_calls(view, filled, _synchronous("cudaMemset"))
