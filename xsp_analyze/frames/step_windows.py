"""When each step took place on its devices, and so how long it took.

A host annotation is no step of asynchronous work: the host runs ahead, and the device is behind by as much as the
queue holds. A step ends when the last device work launched in it ends, and begins when the work launched before it
had ended, be it of before the trace. Where work on the side (an asynchronous checkpoint, a prefetched copy) outlasts
whole steps, the stream that most steps launch on tells for all. Time between two steps in which neither the earlier
one's range was open nor its work ran is of neither.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["QUEUED_NS", "StepBasis", "step_windows"]

QUEUED_NS = 1_000_000
"""A device with nothing to do starts work microseconds after its launch; where it took longer, it was busy."""

_MAX_GAP_SHARE = 0.01  # of the shorter neighbour: marks of profilers leave microseconds between steps that follow on
_NEVER = np.iinfo(np.int64).min


class StepBasis(StrEnum):
    """What the latency of a step is measured by."""

    TIMED = "timed"  # around the model's call, in a run without a profiler
    DEVICE_PERIOD = "device_period"  # from the end of earlier device work to the end of its own
    DEVICE_END = "device_end"  # the first step, or one after a pause: to the end of range and work, from their begin
    HOST = "host"  # the range on the host, as the step launched nothing
    LOAD_TEST = "load_test"  # of a load generator's test as a whole, as it states it itself

    @property
    def sentence(self) -> str:
        """What it is, for people."""
        return _SENTENCES[self]


_SENTENCES = {
    StepBasis.TIMED: "timed around the model's call, without a profiler",
    StepBasis.DEVICE_PERIOD: "from the end of the device work before the step to the end of its own",
    StepBasis.DEVICE_END: "from the step's begin, or the end of earlier device work, to the end of host and device",
    StepBasis.HOST: "from begin to end of the step's range on the host",
    StepBasis.LOAD_TEST: "the mean over queries that the load generator states",
}


def step_windows(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """The steps with `begin_ns` and `end_ns`, whose distance is the step's latency, and `basis`, a `StepBasis`.

    `steps` has one row a process and step: run_id, process_id, step, start_ns, host_ns (duration of its range);
    `activities` run_id, process_id, device_id, stream_id, step, start_ns, duration_ns, call_start_ns and call_end_ns
    (null where no launch is known).
    """
    pieces = [_of_process(rows, activities) for _, rows in steps.group_by("run_id", "process_id", maintain_order=True)]
    if not pieces:
        empty = (pl.lit(0, pl.Int64).alias("begin_ns"), pl.lit(0, pl.Int64).alias("end_ns"), pl.lit("").alias("basis"))
        return steps.with_columns(*empty)
    return pl.concat(pieces)


def _of_process(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    steps = steps.sort("start_ns", "step")
    run, process = steps.select("run_id", "process_id").row(0)
    of_process = pl.col("process_id").eq_missing(pl.lit(process, pl.Int64))
    work = activities.filter(pl.col("run_id") == run, of_process)
    own, before = _own_end(steps, work), _end_before(steps, work)
    if ((own != _NEVER) & (own <= before)).any():  # a copy or collective on the side outlasted whole steps
        main = work.filter(_on_main_stream(work))
        own, before = _own_end(steps, main), _end_before(steps, main)
    before = np.where(before == _NEVER, _unseen_end(work), before)
    begin, end, bases = _windows(
        steps["start_ns"].to_numpy(), (steps["start_ns"] + steps["host_ns"]).to_numpy(), own, before
    )
    return steps.with_columns(
        pl.Series("begin_ns", begin),
        pl.Series("end_ns", end),
        pl.Series("basis", [str(basis) for basis in bases], dtype=pl.String),
    )


def _on_main_stream(work: pl.DataFrame) -> pl.Expr:
    """Whether work is on the stream that most steps launch on; of several, the one that works longest."""
    stream = ("device_id", "stream_id")
    launched = work.filter(pl.col("step").is_not_null())
    streams = launched.group_by(stream).agg(pl.col("step").n_unique().alias("steps"), pl.col("duration_ns").sum())
    device, main = streams.sort("steps", "duration_ns", *stream, nulls_last=True).select(stream).row(-1)
    return pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)) & pl.col("stream_id").eq_missing(
        pl.lit(main, pl.Int64)
    )


def _own_end(steps: pl.DataFrame, work: pl.DataFrame) -> Ints:
    """When the last device work launched in each step ended; `_NEVER` where it launched none."""
    ends = work.group_by("step").agg((pl.col("start_ns") + pl.col("duration_ns")).max().alias("end"))
    return steps.join(ends, on="step", how="left", maintain_order="left")["end"].fill_null(_NEVER).to_numpy()


def _end_before(steps: pl.DataFrame, work: pl.DataFrame) -> Ints:
    """When the last device work launched before each step began ended; `_NEVER` where none was."""
    launch = _launch_times(work).to_numpy()
    order = np.argsort(launch, kind="stable")
    end = (work["start_ns"] + work["duration_ns"]).to_numpy()[order]
    reach = np.concatenate(([_NEVER], np.maximum.accumulate(end)))
    return np.asarray(reach[np.searchsorted(launch[order], steps["start_ns"].to_numpy(), side="left")], dtype=np.int64)


def _unseen_end(work: pl.DataFrame) -> int:
    """When work of before the trace ended behind which the first one stood; `_NEVER` where it stood behind none."""
    first = work.sort("start_ns", maintain_order=True).head(1)
    waited = first.filter(pl.col("start_ns") - pl.col("call_end_ns") > QUEUED_NS)
    return int(waited["start_ns"][0]) if waited.height else _NEVER


def _launch_times(work: pl.DataFrame) -> pl.Series:
    """When each was launched. A stream is a queue: what no call launched, before what a call did, preceded the trace.

    Where no launch of a stream is known, and for what ran later without one, it is when the work began.
    """
    call, start = pl.col("call_start_ns"), pl.col("start_ns")
    first_called = start.filter(call.is_not_null()).min().over("device_id", "stream_id")
    return work.select(pl.coalesce(call, pl.when(start < first_called).then(_NEVER), start)).to_series()


def _windows(start: Ints, host_end: Ints, own_end: Ints, before: Ints) -> tuple[Ints, Ints, list[StepBasis]]:
    launched = (own_end != _NEVER) & (own_end > before)  # else its range is all that tells of it
    own_end = np.where(launched, own_end, _NEVER)
    period = _follows_on(start, host_end, before) & launched & np.concatenate(([False], launched[:-1]))
    begin = np.where(period, before, np.where(launched, np.maximum(start, before), start))
    end = np.where(period, own_end, np.maximum(own_end, host_end))
    begin = np.minimum(begin, end)
    names = {(True, True): StepBasis.DEVICE_PERIOD, (False, True): StepBasis.DEVICE_END}
    bases = [names.get(pair, StepBasis.HOST) for pair in zip(period.tolist(), launched.tolist(), strict=True)]
    return begin, end, bases


def _follows_on(start: Ints, host_end: Ints, before: Ints) -> Bools:
    """Whether each step but the first follows the one before it without a pause of both host and device."""
    pause = start[1:] - np.maximum(host_end[:-1], before[1:])
    length = host_end - start
    allowed = np.minimum(length[1:], length[:-1]) * _MAX_GAP_SHARE
    return np.concatenate(([False], pause <= allowed))
