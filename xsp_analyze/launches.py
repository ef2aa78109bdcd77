"""Device work beside the call that launched it and the work before it on its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Level

if TYPE_CHECKING:
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["STREAM", "SYNC_CALLS", "waits_of", "with_queue"]

STREAM = ("run_id", "process_id", "device_id", "stream_id")
"""What makes a queue: work of one stream runs in the order in which it was put there."""

SYNC_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize"
"""Calls in which the host waits for a device: of the CUDA runtime, the CUDA driver and HIP."""

_COPIES = r"(?i)^(?:cuda|cu|hip)Memcpy"
_ASYNCHRONOUS = r"(?i)Async"


def _is_wait(name: pl.Expr) -> pl.Expr:
    """Whether the host waits for the device in calls of that name: synchronisations, and copies that block."""
    return name.str.contains(SYNC_CALLS) | (name.str.contains(_COPIES) & ~name.str.contains(_ASYNCHRONOUS))


def waits_of(trace: Trace, run: int) -> pl.DataFrame:
    """The run's calls in which the host waited for a device, in order of end: start_ns, end_ns."""
    return (
        trace.scan("spans")
        .filter(
            pl.col("run_id") == run,
            pl.col("level") == str(Level.RUNTIME),
            pl.col("duration_ns").is_not_null(),
            _is_wait(pl.col("name").cast(pl.String)),
        )
        .select("start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
        .sort("end_ns", "start_ns")
        .collect()
    )


def with_queue(activities: pl.DataFrame) -> pl.DataFrame:
    """The activities (see `device_activities`) in order of stream and start, with what they found on their stream.

    `previous_end_ns`: when all earlier work of the stream had ended (null for the first); `waiting`: how many
    activities of the stream were launched before, and had not ended, when the launch of this one began.
    """
    end = pl.col("start_ns") + pl.col("duration_ns")
    ordered = activities.sort(*STREAM, "start_ns", "span_id", nulls_last=True).with_columns(
        end.cum_max().shift(1).over(STREAM).alias("previous_end_ns"), end.alias("end_ns")
    )
    return ordered.with_columns(_waiting(ordered)).drop("end_ns")


def _waiting(ordered: pl.DataFrame) -> pl.Series:
    """For each activity whose launch is known, those of its stream that were launched before and not yet done."""
    found = np.zeros(ordered.height, dtype=np.int64)
    known = ordered["call_start_ns"].is_not_null()
    numbered = ordered.select(pl.struct(STREAM).rle_id().alias("stream"), "call_start_ns", "end_ns").with_row_index()
    for group in numbered.filter(known).partition_by("stream"):
        launch, end = group["call_start_ns"].to_numpy(), group["end_ns"].to_numpy()
        found[group["index"].to_numpy()] = _pending(launch, end)
    return pl.Series("waiting", found).set(~known, None)


def _pending(launch: Ints, end: Ints) -> Ints:
    """At each launch, how many were launched strictly before it, less how many had ended by then."""
    ended = np.searchsorted(np.sort(end), launch, side="right")
    return np.asarray(np.searchsorted(np.sort(launch), launch, side="left") - ended, dtype=np.int64).clip(min=0)
