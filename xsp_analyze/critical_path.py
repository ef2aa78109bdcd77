"""The chain of host, launch and device work that a run's end waited for, walked back from that end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["Chain", "Link", "Timeline", "walk"]

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


@dataclass(slots=True)
class Chain:
    """The path from its end to its beginning: kind, interval and, of device work, the row in the Timeline (else -1)."""

    kinds: list[Link] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(self, kind: Link, start_ns: int, end_ns: int, row: int = _NONE) -> None:
        """Puts a piece before those there are, unless it is empty."""
        if end_ns > start_ns:
            self.kinds.append(kind)
            self.starts.append(start_ns)
            self.ends.append(end_ns)
            self.rows.append(row)


def walk(timeline: Timeline) -> Chain:
    """The path; its pieces lie end to end and fill the time from `first_ns` to `last_ns`."""
    return _Walk(timeline).chain()


class _Walk:
    """Goes back in time; `_at` is how far it has come."""

    def __init__(self, timeline: Timeline) -> None:
        self._of = timeline
        self._stream_end, self._stream_row = _running_last(timeline)
        self._waited = _waited_for(timeline)
        self._waits = np.flatnonzero(self._waited >= 0)
        self._wait_ends = timeline.wait_end_ns[self._waits]
        self._chain = Chain()
        self._at = timeline.last_ns
        self._seen = np.zeros(len(timeline.start_ns), dtype=np.bool_)

    def chain(self) -> Chain:
        last = len(self._of.end_ns) - 1
        work = last if last >= 0 and self._of.end_ns[last] >= self._at else _NONE
        while self._at > self._of.first_ns:
            work = self._host() if work == _NONE else self._device(work)
        return self._chain

    def _to(self, kind: Link, time_ns: int, row: int = _NONE) -> None:
        time_ns = max(min(time_ns, self._at), self._of.first_ns)
        self._chain.add(kind, time_ns, self._at, row)
        self._at = time_ns

    def _device(self, work: int) -> int:
        """Back over an activity to what let it start: its launch, its stream, or work elsewhere that ended since."""
        self._seen[work] = True
        start = int(self._of.start_ns[work])
        self._to(Link.DEVICE, start, work)
        launched = min(int(self._of.call_end_ns[work]), start)
        before, row = int(self._stream_end[work]), int(self._stream_row[work])
        elsewhere = self._ended_last_before(start)
        if elsewhere != _NONE and self._was_waited_for(elsewhere, start, max(launched, before)):
            row, before = elsewhere, int(self._of.end_ns[elsewhere])
        if row != _NONE and before >= launched and not self._seen[row]:
            self._to(Link.GAP, before)
            return row
        self._to(Link.LAUNCH if launched >= 0 else Link.UNKNOWN, launched if launched >= 0 else self._of.first_ns)
        return _NONE

    def _was_waited_for(self, elsewhere: int, start_ns: int, ready_ns: int) -> bool:
        """Whether work that was ready began only, and soon, after that of another stream: sooner than it had waited."""
        end = int(self._of.end_ns[elsewhere])
        return start_ns - end < end - ready_ns

    def _ended_last_before(self, time_ns: int) -> int:
        """The activity not yet walked over that ended last, not after that time."""
        row = int(np.searchsorted(self._of.end_ns, time_ns, side="right")) - 1
        while row >= 0 and self._seen[row]:
            row -= 1
        return row

    def _host(self) -> int:
        """Back along the host to the last wait in which the device's work ended."""
        place = int(np.searchsorted(self._wait_ends, self._at, side="right")) - 1
        while place >= 0:
            wait = self._waits[place]
            work = int(self._waited[wait])
            if not self._seen[work]:
                self._to(Link.HOST, int(self._of.wait_end_ns[wait]))
                self._to(Link.RETURN, int(self._of.end_ns[work]))
                return work
            place -= 1
        self._to(Link.HOST, self._of.first_ns)
        return _NONE


def _running_last(timeline: Timeline) -> tuple[Ints, Ints]:
    """For each activity the latest end, and its row, of those that began before it on its stream; -1: none did."""
    ends = np.full(len(timeline.start_ns), _NONE, dtype=np.int64)
    rows = np.full(len(timeline.start_ns), _NONE, dtype=np.int64)
    order = np.lexsort((timeline.end_ns, timeline.start_ns, timeline.stream))
    for queue in np.split(order, np.flatnonzero(np.diff(timeline.stream[order])) + 1):
        end = timeline.end_ns[queue]
        latest = np.maximum.accumulate(end)
        at = np.maximum.accumulate(np.where(end == latest, np.arange(len(queue)), 0))
        ends[queue[1:]] = np.minimum(latest[:-1], timeline.start_ns[queue[1:]])
        rows[queue[1:]] = queue[at[:-1]]
    return ends, rows


def _waited_for(timeline: Timeline) -> Ints:
    """For each wait the activity that ended last during it; -1: none did, so nothing was waited for."""
    row = np.searchsorted(timeline.end_ns, timeline.wait_end_ns, side="right") - 1
    ended = np.where(row >= 0, timeline.end_ns[np.maximum(row, 0)] if len(timeline.end_ns) else 0, _NONE)
    return np.where(ended > timeline.wait_start_ns, row, _NONE).astype(np.int64)
