"""The chain of host, launch and device work that a run's end waited for, and the layers it went through."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import in_order, run_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Ints

__all__ = ["LINKS", "Chain", "Link", "Timeline", "innermost_calls", "overlaps", "walk"]

# The chain of host, launch and device work that a run's end waited for, walked back from that end.

_NONE = -1


class Link(StrEnum):
    """What a piece of the path is."""

    DEVICE = "device"  # an activity ran
    LAUNCH = "launch latency"  # from the launching call's end to the start of the work
    GAP = "device gap"  # between one activity and the next that had to wait for it
    RETURN = "synchronisation"  # from the end of the work that was waited for to the return of the wait
    HOST = "host"  # the process ran
    UNKNOWN = "unknown"  # before work whose launch is not in the trace


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run's device activities in order of end, their launches, and the waits of its host; all times in ns.

    `stream` numbers the queues, `call_end_ns` is -1 where the launch is not known. `wait_start_ns` and `wait_end_ns`
    are the host's synchronising calls in order of end.
    """

    start_ns: Ints
    end_ns: Ints
    stream: Ints
    call_end_ns: Ints
    wait_start_ns: Ints
    wait_end_ns: Ints
    first_ns: int
    last_ns: int


LINKS = tuple(Link)
_DEVICE, _LAUNCH, _GAP, _RETURN, _HOST, _UNKNOWN = range(len(LINKS))


@dataclass(frozen=True, slots=True)
class Chain:
    """The path from its end to its beginning: place in LINKS, interval and, of device work, the Timeline's row (or -1).

    No piece is empty.
    """

    links: Ints
    start_ns: Ints
    end_ns: Ints
    rows: Ints


def walk(timeline: Timeline) -> Chain:
    """The path; its pieces lie end to end and fill the time from `first_ns` to `last_ns`."""
    return _Walk(timeline).chain()


class _Walk:
    """Goes back in time; `_at` is how far it has come.

    What can be known of every activity beforehand is worked out for all at once, and read one by one without numpy,
    whose scalars are slow.
    """

    def __init__(self, timeline: Timeline) -> None:
        stream_end, stream_row = _running_last(timeline)
        elsewhere = np.searchsorted(timeline.end_ns, timeline.start_ns, side="right") - 1
        self._start, self._end = _each(timeline.start_ns), _each(timeline.end_ns)
        self._launched = _each(np.minimum(timeline.call_end_ns, timeline.start_ns))
        self._stream_end, self._stream_row = _each(stream_end), _each(stream_row)
        self._elsewhere = _each(elsewhere)
        waited = _activities_awaited(timeline)
        waits = np.flatnonzero(waited >= 0)
        self._waited, self._wait_ends = _each(waited[waits]), _each(timeline.wait_end_ns[waits])
        self._first, self._at = timeline.first_ns, timeline.last_ns
        self._seen = bytearray(len(timeline.start_ns))
        self._pieces = array("q")  # link, start, row of each; it ends where the one before starts

    def chain(self) -> Chain:
        end, last = self._at, len(self._end) - 1
        work = last if last >= 0 and self._end[last] >= end else _NONE
        while self._at > self._first:
            work = self._host() if work == _NONE else self._device(work)
        links, start, row = np.frombuffer(self._pieces, dtype=np.int64).reshape(-1, 3).T
        return Chain(links, start, np.concatenate(([end], start[:-1])), row)

    def _to(self, link: int, time_ns: int, row: int = _NONE) -> None:
        time_ns = max(time_ns, self._first)
        if time_ns < self._at:
            self._pieces.extend((link, time_ns, row))
            self._at = time_ns

    def _device(self, work: int) -> int:
        """Back over an activity to what let it start: its launch, its stream, or work elsewhere that ended since."""
        self._seen[work] = 1
        start = self._start[work]
        self._to(_DEVICE, start, work)
        launched, before, row = self._launched[work], self._stream_end[work], self._stream_row[work]
        elsewhere = self._ended_last(self._elsewhere[work])
        if elsewhere != _NONE and self._was_waited_for(elsewhere, start, max(launched, before)):
            row, before = elsewhere, self._end[elsewhere]
        if row != _NONE and before >= launched and not self._seen[row]:
            self._to(_GAP, before)
            return row
        self._to(_LAUNCH if launched >= 0 else _UNKNOWN, launched if launched >= 0 else self._first)
        return _NONE

    def _was_waited_for(self, elsewhere: int, start_ns: int, ready_ns: int) -> bool:
        """Whether work that was ready began only, and soon, after that of another stream: sooner than it had waited."""
        end = self._end[elsewhere]
        return start_ns - end < end - ready_ns

    def _ended_last(self, row: int) -> int:
        """The last of the activities, in order of end, up to this one that has not been walked over."""
        while row >= 0 and self._seen[row]:
            row -= 1
        return row

    def _host(self) -> int:
        """Back along the host to the last wait in which the device's work ended."""
        index = bisect_right(self._wait_ends, self._at) - 1
        while index >= 0:
            work = self._waited[index]
            if not self._seen[work]:
                self._to(_HOST, self._wait_ends[index])
                self._to(_RETURN, self._end[work])
                return work
            index -= 1
        self._to(_HOST, self._first)
        return _NONE


def _each(values: Ints) -> Sequence[int]:
    """The values to be read one by one, as numbers of Python's own, without a copy of all."""
    return np.ascontiguousarray(values, dtype=np.int64).data


def _running_last(timeline: Timeline) -> tuple[Ints, Ints]:
    """For each activity the latest end, and its row, of those that began before it on its stream; -1: none did."""
    ends = np.full(len(timeline.start_ns), _NONE, dtype=np.int64)
    rows = np.full(len(timeline.start_ns), _NONE, dtype=np.int64)
    order = in_order([pl.Series(timeline.stream), pl.Series(timeline.start_ns)])  # rows stand in order of end
    for queue in np.split(order, np.flatnonzero(np.diff(timeline.stream[order])) + 1):
        end = timeline.end_ns[queue]
        latest = np.maximum.accumulate(end)
        at = np.maximum.accumulate(np.where(end == latest, np.arange(len(queue)), 0))
        ends[queue[1:]] = np.minimum(latest[:-1], timeline.start_ns[queue[1:]])
        rows[queue[1:]] = queue[at[:-1]]
    return ends, rows


def _activities_awaited(timeline: Timeline) -> Ints:
    """For each wait the activity that ended last during it; -1: none did, so nothing was waited for."""
    row = np.searchsorted(timeline.end_ns, timeline.wait_end_ns, side="right") - 1
    ended = np.where(row >= 0, timeline.end_ns[np.maximum(row, 0)] if len(timeline.end_ns) else 0, _NONE)
    return np.where(ended > timeline.wait_start_ns, row, _NONE).astype(np.int64)


# Which layer a process was in at any time: of the calls running on its threads, the one that began last.


def innermost_calls(calls: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Start, end and row (in `calls`) of every stretch of time that is some call's, in order, without overlap.

    `calls` has start_ns and end_ns. A stretch ends wherever any call begins or ends.
    """
    order = in_order([calls["start_ns"], -calls["end_ns"]])
    start, end = calls["start_ns"].to_numpy()[order], calls["end_ns"].to_numpy()[order]
    edges = np.concatenate((start, end))
    edges.sort()
    edges = edges[run_starts(edges)]  # numpy's unique is slower
    left, right = edges[:-1], edges[1:]
    call = np.searchsorted(start, left, side="right") - 1
    longer = _longer_before(end)
    ended = np.flatnonzero(end[call] <= left) if len(call) else call
    while len(ended):
        call[ended] = longer[call[ended]]
        ended = ended[call[ended] >= 0]
        ended = ended[end[call[ended]] <= left[ended]]
    covered = np.flatnonzero(call >= 0)
    return left[covered], right[covered], order[call[covered]]


def _longer_before(end: Ints) -> Ints:
    """For each call, in order of start, the last one before it that ends later, or -1."""
    longer = np.arange(-1, len(end) - 1, dtype=np.int64)
    shorter = np.flatnonzero(end[longer[1:]] <= end[1:]) + 1 if len(end) else longer
    while len(shorter):
        longer[shorter] = longer[longer[shorter]]  # what lies between ends no later than the one passed over
        shorter = shorter[longer[shorter] >= 0]
        shorter = shorter[end[longer[shorter]] <= end[shorter]]
    return longer


def overlaps(stretches: tuple[Ints, Ints, Ints], start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """How long each call's stretches overlap each interval: rows, -1 for what no call covers, and ns; none of 0."""
    left, right, rows = stretches
    first = np.searchsorted(right, start_ns, side="right")
    count = np.searchsorted(left, end_ns, side="left") - first
    interval = np.repeat(np.arange(len(start_ns)), count)
    at = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count, count) + first[interval]
    shared = np.minimum(right[at], end_ns[interval]) - np.maximum(left[at], start_ns[interval])
    rest = end_ns - start_ns
    np.subtract.at(rest, interval, shared)
    row = np.concatenate((rows[at], np.full(len(rest), -1, dtype=np.int64)))
    shared = np.concatenate((shared, rest))
    kept = shared != 0
    return row[kept], shared[kept]
