"""Device work beside the call that launched it and the work before it on its stream."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, run_starts, running_max, sort_by
from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["STREAM", "SYNC_CALLS", "host_waits", "is_wait", "names_like", "queues"]

STREAM = ("run_id", "process_id", "device_id", "stream_id")
"""What makes a queue: work of one stream runs in the order in which it was put there."""

SYNC_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
"""Calls in which the host waits for a device: of the CUDA runtime, the CUDA driver and HIP."""

_COPIES = r"(?i)^(?:cuda|cu|hip)Memcpy"
_FREES = r"(?i)^(?:cuda|cu|hip)(?:Free|MemFree)(?:Array|Host)?(?:_v\d+)?$"
_ASYNCHRONOUS = r"(?i)Async"


def is_wait(name: pl.Expr) -> pl.Expr:
    """Whether the host waits for the device in calls of that name: synchronisations, copies that block, frees."""
    blocks = name.str.contains(_COPIES) & ~name.str.contains(_ASYNCHRONOUS)
    return name.str.contains(SYNC_CALLS) | blocks | name.str.contains(_FREES)


def host_waits(view: TraceView, run: int) -> pl.DataFrame:
    """The run's calls in which the host waited for a device, in order of end: start_ns, end_ns."""
    return (
        view.trace.scan("spans")
        .filter(
            pl.col("run_id") == run,
            pl.col("level") == str(Level.RUNTIME),
            pl.col("duration_ns").is_not_null(),
            pl.col("name").is_in(names_like(view.span_names, is_wait).implode()),
        )
        .select("start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
        .sort("end_ns", "start_ns")
        .collect()
    )


def names_like(names: pl.Series, predicate: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
    """Those of the names of which this holds."""
    return names.to_frame("name").filter(predicate(pl.col("name").cast(pl.String))).to_series()


def queues(activities: pl.DataFrame) -> pl.DataFrame:
    """What the activities (see `device_activities`), which stand in order of start, found on their stream.

    `previous_end_ns`: when all earlier work of the stream had ended (null for the first); `waiting`: how many
    activities of the stream were launched before, and had not ended, when the launch of this one began.
    """
    stream, size = group_ids(activities.select(STREAM))
    order = sort_by(stream, size)
    starts = run_starts(stream[order])
    end = (activities["start_ns"] + activities["duration_ns"]).to_numpy()[order]
    previous, waiting = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    previous[order[1:]] = running_max(end, starts)[:-1]
    launch = activities["call_start_ns"].fill_null(0).to_numpy()[order]
    has_call = activities["call_start_ns"].is_not_null().to_numpy()[order]
    for first, last in pairwise((*starts.tolist(), len(order))):
        rows = slice(first, last) if has_call[first:last].all() else first + np.flatnonzero(has_call[first:last])
        waiting[order[rows]] = _pending(launch[rows], end[rows])
    first_of_stream = np.zeros(len(order), dtype=np.bool_)
    first_of_stream[order[starts]] = True
    return pl.DataFrame({"previous_end_ns": previous, "waiting": waiting}).select(
        pl.when(~pl.Series(first_of_stream)).then("previous_end_ns").alias("previous_end_ns"),
        pl.when(activities["call_start_ns"].is_not_null()).then("waiting").alias("waiting"),
    )


def _pending(launch: Ints, end: Ints) -> Ints:
    """At each launch, how many were launched strictly before it, less how many had ended by then."""
    ended = np.searchsorted(np.sort(end), launch, side="right")
    return np.asarray(np.searchsorted(np.sort(launch), launch, side="left") - ended, dtype=np.int64).clip(min=0)
