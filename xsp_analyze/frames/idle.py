"""When devices had nothing to do, and why: what the host did before it launched what came next.

Two questions are asked of it. What did this device wait for: `idle_by_device`, of each device by itself, each stretch
with its cause, over the whole run (B03, B16 and the viewer take from it what they show). What did the job lose to this
call: `idle_of_run`, when none of a run's devices worked, inside every step, of which findings take the part in or after
calls of one kind; a step that recompiles counts there, which a trimmed mean leaves out, and work of 0 ns parts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import run_starts
from xsp_analyze.frames.host_calls import BLOCK_CAUSES, NO_THREAD, Blocks, host_blocks
from xsp_model.intervals import coverage_before, gaps, intersection, merge, union_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Bools, Ints

    Intervals = tuple[Ints, Ints]

__all__ = ["CAUSES", "DEVICE", "IdleTime", "Intervals", "RunIdle", "idle_by_device", "idle_of_run", "idle_time"]

DEVICE = ("run_id", "device_id")
_WORK = ("process_id", "start_ns", "duration_ns", "call_start_ns", "call_end_ns", "call_thread_id", "parent_id")

_BLOCKED = tuple(f"idle_{cause}_ns" for cause in BLOCK_CAUSES)
CAUSES = (*_BLOCKED, "idle_launch_ns", "idle_unknown_ns")
"""What idle time divides into; see B03's columns. The first are those of BLOCK_CAUSES."""

_SYNC, _INITIALISATION, _INPUT, _HOST, _LAUNCH, _UNKNOWN = range(len(CAUSES))
_NEVER = np.iinfo(np.int64).max
_LOADING_NS = 1_000_000  # a launch takes microseconds; beside an idle device one of milliseconds loads code


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Disjoint stretches in order in which a device was idle: cause (an index of CAUSES), span of the call or -1."""

    start: Ints
    end: Ints
    cause: Ints
    call: Ints

    def within(self, begin: int, until: int) -> tuple[Ints, Ints, Ints]:
        """The part of it in a window: lengths in ns, causes and calls."""
        rows = slice(np.searchsorted(self.end, begin, side="right"), np.searchsorted(self.start, until, side="left"))
        length = np.minimum(self.end[rows], until) - np.maximum(self.start[rows], begin)
        return length, self.cause[rows], self.call[rows]


@dataclass(frozen=True)
class RunIdle:
    """Stretches in order, in ns, in which none of a run's devices worked; `inner`: with work before and after them."""

    first: Ints
    last: Ints
    inner: Bools

    def within(self, spans: Intervals) -> int:
        """What lies within the spans."""
        return union_length(*intersection((self.first, self.last), merge(*spans)))

    def after(self, calls: Intervals, *, without: Intervals) -> int:
        """What lies between the end of the first call that ends in a gap, and the gap's end, but not within the others.

        Of each gap no more than the call took: had it not been made, the host would have been earlier by that. Calls
        before the first device work, or after the last, held up nothing.
        """
        first, last = self.first[self.inner], self.last[self.inner]
        order = np.argsort(calls[1], kind="stable")
        ends, lengths = calls[1][order], (calls[1] - calls[0])[order]
        index = np.searchsorted(ends, first)
        index, last = index[index < len(ends)], last[index < len(ends)]
        inside = ends[index] < last
        index, last = index[inside], last[inside]
        return int(np.minimum(_lengths_without(ends[index], last, without), lengths[index]).sum())

    def short(self, longest_ns: int, held_up: Intervals) -> int:
        """The inner gaps that are no longer than that and meet none of the spans."""
        first, last = self.first[self.inner], self.last[self.inner]
        free = last - first <= longest_ns
        if len(held_up[0]):
            starts, ends = merge(*held_up)
            next_one = np.searchsorted(ends, first, side="right")
            met = next_one < len(starts)
            met[met] = starts[next_one[met]] < last[met]
            free &= ~met
        return int((last - first)[free].sum())


def idle_by_device(view: TraceView) -> Mapping[tuple[int, int | None], IdleTime]:
    """All the idle time of each device that worked, by run and device, over the extent of its run; see `idle_time`."""
    extents = {run: (begin, end) for run, begin, end in view.extents.iter_rows()}
    work = view.all_activities.select(*DEVICE, *_WORK).partition_by(DEVICE, as_dict=True, include_key=False)
    idle = {}
    for (run, device), rows in work.items():
        if run in extents:
            processes = pl.col("process_id").is_in(rows["process_id"].unique().implode(), nulls_equal=True)
            idle[run, device] = idle_time(rows, view.once(host_blocks, run).filter(processes), extents[run])
    return idle


def idle_of_run(view: TraceView, run: int, windows: pl.DataFrame) -> RunIdle:
    """When none of the run's devices worked, inside the windows (start_ns, end_ns)."""
    work = view.all_activities.filter(pl.col("run_id") == run)
    start = work["start_ns"].to_numpy()
    inside = merge(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    bounds = (inside[0].min(), inside[1].max()) if len(inside[0]) else (0, 0)
    first, last = intersection(_gaps_within(start, start + work["duration_ns"].to_numpy(), bounds), inside)
    earliest, latest = (start.min(), start.max()) if len(start) else (0, -1)
    return RunIdle(first, last, (first >= earliest) & (last <= latest))


def _gaps_within(start: Ints, end: Ints, bounds: tuple[int, int]) -> Intervals:
    """What a gap is: a stretch between these times in which no work runs; work of 0 ns parts one, too."""
    return gaps(np.concatenate((start, bounds)), np.concatenate((end, bounds)))


def idle_time(work: pl.DataFrame, blocks: pl.DataFrame, extent: tuple[int, int]) -> IdleTime:
    """The idle time of a device over the extent of its run, by cause.

    `work` is all its work in order of start, with call_start_ns and call_thread_id (of the launch; null: unknown);
    `blocks` the calls of its processes that explain idle time, see `host_blocks`. Until the next launch, what
    the launching thread was in explains a gap, else what another thread was in (but not input, which is fetched ahead);
    else the host did other work. From the launch on it is the launch, what that loads (of over a millisecond), or the
    call that it was made in, if that blocks. A gap after which nothing was launched is the host's.
    """
    start = work["start_ns"].to_numpy()
    end = start + work["duration_ns"].to_numpy()
    left, right = _gaps_within(start, end, extent)
    launch, thread, row = _next_launches(work, start, right, extent[1])
    has_launch = launch != _NEVER
    launched = np.clip(launch, left, right)
    unknown = _pieces(left[~has_launch], right[~has_launch], _UNKNOWN)
    parts, loading = [unknown], Blocks.of(blocks.filter(pl.col("cause") == _INITIALISATION))
    for number in np.unique(thread[has_launch]).tolist():
        rows = has_launch & (thread == number)
        own, others = _split(blocks, number)
        parts.append(_with_causes(_pieces(left[rows], launched[rows], _HOST), (own, others)))
        inside, after = _within_launch(launched[rows], right[rows], own)
        parts.extend((inside, *_long_calls(_with_causes(after, (loading,)), work, row[rows], right[rows])))
    return _in_order(parts)


def _next_launches(work: pl.DataFrame, start: Ints, right: Ints, last: int) -> tuple[Ints, Ints, Ints]:
    """When what ends each gap was launched (of several the first), on which thread, its row; `_NEVER` where unknown.

    The gap at the end of a run has no launch to wait for: the host had until its end, if launches are known at all.
    """
    call = work["call_start_ns"].fill_null(_NEVER).to_numpy()
    thread = work["call_thread_id"].fill_null(NO_THREAD).to_numpy()
    if not len(start):
        return np.full(len(right), _NEVER), np.full(len(right), NO_THREAD), np.full(len(right), -1)
    together = run_starts(start)  # work stands in order of start
    lengths = np.diff(np.append(together, len(start)))
    first = np.lexsort((call, np.repeat(np.arange(len(together)), lengths)))[together]
    at = np.searchsorted(start[together], right)
    final = at >= len(together)
    row = first[np.minimum(at, len(together) - 1)]
    launched = np.where(final, last if (call != _NEVER).any() else _NEVER, call[row])
    return launched, np.where(final, _mode(thread[call != _NEVER]), thread[row]), np.where(final, -1, row)


def _mode(threads: Ints) -> int:
    values, count = np.unique(threads, return_counts=True)
    return int(values[count.argmax()]) if len(values) else NO_THREAD


def _split(blocks: pl.DataFrame, thread: int) -> tuple[Blocks, Blocks]:
    """The calls of the thread, and of other threads those that hold up the whole process."""
    own = pl.col("thread_id") == thread
    holds_up = pl.col("cause").is_in([_SYNC, _INITIALISATION])
    return Blocks.of(blocks.filter(own)), Blocks.of(blocks.filter(~own, holds_up))


_Pieces = tuple["Ints", "Ints", "Ints", "Ints"]  # start, end, cause, call


def _pieces(start: Ints, end: Ints, cause: int) -> _Pieces:
    keep = start < end
    count = int(keep.sum())
    return start[keep], end[keep], np.full(count, cause), np.full(count, -1)


def _within_launch(launched: Ints, right: Ints, own: Blocks) -> tuple[_Pieces, _Pieces]:
    """Idle time from launches on: in a call that blocks and launched itself (a pageable copy), and the rest."""
    at = own.at(launched)
    blocks = np.flatnonzero(at >= 0)
    until = launched.copy()
    until[blocks] = np.minimum(right[blocks], own.end[at[blocks]])
    start, end, _, _ = _pieces(launched, until, _LAUNCH)
    row = at[launched < until]
    return (start, end, own.cause[row], own.call[row]), _pieces(until, right, _LAUNCH)


def _long_calls(pieces: _Pieces, work: pl.DataFrame, row: Ints, right: Ints) -> tuple[_Pieces, _Pieces]:
    """The pieces parted: those within launch calls of over a millisecond, which load what they launch, and the rest.

    `row` is the work (of `work`) that ends the gap which ends at `right`; -1: none does.
    """
    start, end, cause, call = pieces
    at = row[np.argsort(right)][np.minimum(np.searchsorted(np.sort(right), end), max(len(right) - 1, 0))]
    lasts = (work["call_end_ns"] - work["call_start_ns"]).fill_null(0).to_numpy()[at]
    until = np.minimum(work["call_end_ns"].fill_null(0).to_numpy()[at], end)
    loads = (cause == _LAUNCH) & (at >= 0) & (lasts > _LOADING_NS) & (until > start)
    span = work["parent_id"].fill_null(-1).to_numpy()[at]
    loading = (start[loads], until[loads], np.full(int(loads.sum()), _INITIALISATION), span[loads])
    start = np.where(loads, until, start)
    rest = start < end
    return loading, (start[rest], end[rest], cause[rest], call[rest])


def _with_causes(pieces: _Pieces, by: tuple[Blocks, ...]) -> _Pieces:
    """The pieces, cut where calls begin and end and given to those they lie in; the first of `by` goes first."""
    touched = np.zeros(len(pieces[0]), dtype=np.bool_)
    for blocks in by:
        union = (blocks.start, blocks.end)
        touched |= coverage_before(union, pieces[1]) > coverage_before(union, pieces[0])
    rest = tuple(column[~touched] for column in pieces)
    start, end, cause, call = _cut(tuple(column[touched] for column in pieces), by)
    for blocks in reversed(by):
        at = blocks.at(start)
        inside = at >= 0
        cause[inside], call[inside] = blocks.cause[at[inside]], blocks.call[at[inside]]
    return tuple(np.concatenate(pair) for pair in zip(rest, (start, end, cause, call), strict=True))  # type: ignore[return-value]


def _cut(pieces: tuple[Ints, ...], by: tuple[Blocks, ...]) -> _Pieces:
    """The pieces, which are disjoint, divided at every begin and end of a call."""
    start, end, cause, call = pieces
    order = np.argsort(start, kind="stable")
    start, end, cause, call = start[order], end[order], cause[order], call[order]
    edges = np.unique(np.concatenate((start, end, *(b.start for b in by), *(b.end for b in by))))
    at = np.searchsorted(start, edges[:-1], side="right") - 1
    inside = (at >= 0) & (edges[:-1] < end[np.maximum(at, 0)]) if len(start) else np.zeros(len(at), dtype=np.bool_)
    row = at[inside]
    return edges[:-1][inside], edges[1:][inside], cause[row], call[row]


def _in_order(parts: list[_Pieces]) -> IdleTime:
    start, end, cause, call = (np.concatenate([part[i] for part in parts]) for i in range(4))
    order = np.argsort(start, kind="stable")
    return IdleTime(start[order], end[order], cause[order], call[order])


def _lengths_without(first: Ints, last: Ints, others: Intervals) -> Ints:
    """How much of each stretch lies in none of the others."""
    merged = merge(*others)
    return np.asarray(last - first - (coverage_before(merged, last) - coverage_before(merged, first)), dtype=np.int64)
