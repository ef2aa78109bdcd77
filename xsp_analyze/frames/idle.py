"""When devices had nothing to do, and why: what the host did before it launched what came next.

Two questions are asked of it. What did this device wait for: `idle_by_device`, of each device by itself, each stretch
with its cause, over the whole run (B03, B16, the viewer and findings on idle time take theirs from it). What did the
job lose while code was compiled: `idle_of_run`, when none of a run's devices worked, inside every step; a step that
recompiles counts there, which a trimmed mean leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import run_starts
from xsp_analyze.frames.host_calls import (
    BLOCK_CAUSES,
    NO_THREAD,
    Blocks,
    HostCalls,
    host_blocks,
    host_spans,
    innermost_around,
    open_operators,
)
from xsp_model import Attribution
from xsp_model.columns.arrays import distinct_numbers
from xsp_model.columns.intervals import Lanes, gaps, intersection, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Ints

    Intervals = tuple[Ints, Ints]

__all__ = ["CAUSES", "DEVICE", "SHORT_GAP_NS", "IdleTime", "Intervals", "idle_by_device", "idle_of_run"]

DEVICE = ("run_id", "device_id")
_WORK = ("process_id", "start_ns", "duration_ns", "call_start_ns", "call_end_ns", "call_thread_id", "parent_id")

_MIGRATED = pl.coalesce(
    "call_start_ns", pl.when(pl.col("attribution").cast(pl.String) == str(Attribution.UNIFIED_MEMORY)).then("start_ns")
)
"""When each was launched; of migrations, which nobody launches, when they began: the host asked for the memory then."""

_BLOCKED = tuple(f"idle_{cause}_ns" for cause in BLOCK_CAUSES)
CAUSES = (*_BLOCKED, "idle_launch_ns", "idle_unknown_ns")
"""What idle time divides into; see B03's columns. The first are those of BLOCK_CAUSES."""

_SYNC, _INITIALISATION, _INPUT, _HOST, _PROFILER, _LAUNCH, _UNKNOWN = range(len(CAUSES))
_BEHIND_WAIT = len(CAUSES)  # what becomes _SYNC: the wait is over
_PROCESSES = pl.List(pl.Int64)
_LANES = {"device_id": pl.Int64, "lane": pl.Int64}
_NEVER = np.iinfo(np.int64).max
_LOADING_NS = 1_000_000  # a launch takes microseconds; beside an idle device one of milliseconds loads code


SHORT_GAP_NS = 200_000
"""Our choice: longer than that an operator keeps the host only where something else holds it up."""


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Disjoint stretches in order in which a device was idle: cause (an index of CAUSES), span of the call or -1.

    `is_launching`: the host only launched, in a gap of at most SHORT_GAP_NS. `is_behind_wait`: the wait that is the
    cause had ended, and the host worked on.
    """

    start: Ints
    end: Ints
    cause: Ints
    call: Ints
    is_launching: Bools
    is_behind_wait: Bools

    def of(self, rows: Ints | Bools) -> IdleTime:
        """Some of them."""
        return IdleTime(*(getattr(self, field.name)[rows] for field in fields(self)))


def idle_by_device(view: TraceView) -> Mapping[tuple[int, int | None], IdleTime]:
    """All the idle time of each device that worked, by run and device, over the extent of its run; see `idle_times`.

    Devices of the same processes wait for the same calls of the host: they are looked at together.
    """
    extents = {run: (begin, end) for run, begin, end in view.extents.iter_rows()}
    rows = view.all_activities.select(*DEVICE, *_WORK, "attribution")
    alike = (
        rows.group_by(DEVICE, maintain_order=True)
        .agg(pl.col("process_id").unique().sort(nulls_last=True))
        .group_by("run_id", "process_id", maintain_order=True)
        .agg("device_id")
    )
    by_run = rows.partition_by("run_id", as_dict=True)
    idle: dict[tuple[int, int | None], IdleTime] = {}
    for run, processes, devices in alike.iter_rows():
        if run in extents:
            numbers = pl.DataFrame({"device_id": devices, "lane": range(len(devices))}, schema_overrides=_LANES)
            work = (
                by_run[run,]
                .join(numbers, on="device_id", nulls_equal=True, maintain_order="left")
                .sort("lane", "start_ns", maintain_order=True)
            )
            of_processes = pl.col("process_id").is_in(pl.Series([processes], dtype=_PROCESSES), nulls_equal=True)
            calls = view.once(host_blocks, run).filter(of_processes)
            spans = view.once(host_spans, run, SHORT_GAP_NS // 2).filter(of_processes)
            is_untied = work["call_start_ns"].null_count() == work.height
            operators = open_operators(view, run, of_processes) if is_untied else None
            work = work if is_untied else work.with_columns(_MIGRATED.alias("call_start_ns"))
            times = idle_times(work, HostCalls.of(calls), spans, extents[run], operators)
            idle |= {(run, device): time for device, time in zip(devices, times, strict=True)}
    return {key: idle[key] for key in rows.select(DEVICE).unique(maintain_order=True).iter_rows() if key in idle}


def idle_of_run(view: TraceView, run: int, windows: pl.DataFrame) -> Intervals:
    """When none of the run's devices worked, inside the windows (start_ns, end_ns): starts and ends, in order."""
    work = view.all_activities.filter(pl.col("run_id") == run)
    start = work["start_ns"].to_numpy()
    inside = merge(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    bounds = np.array([inside[0].min(), inside[1].max()]) if len(inside[0]) else np.zeros(2, dtype=np.int64)
    end = start + work["duration_ns"].to_numpy()
    return intersection(gaps(np.concatenate((start, bounds)), np.concatenate((end, bounds))), inside)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Stretches without work: whose, from when to when, when and on which thread what ends each was launched.

    `row` is the first work that ends it; -1: none does. `launch` is `_NEVER` where it is unknown.
    """

    lane: Ints
    left: Ints
    right: Ints
    launch: Ints
    thread: Ints
    row: Ints


def idle_times(
    work: pl.DataFrame, calls: HostCalls, spans: pl.DataFrame, extent: tuple[int, int], operators: Blocks | None
) -> list[IdleTime]:
    """The idle time of each device (a lane, from 0) over the extent of its run, by cause.

    `work` is all their work by lane and start, with call_start_ns and call_thread_id (of the launch; null: unknown);
    `calls` those of their processes that explain idle time. Until the next launch, what the launching thread was in
    explains a gap, else what another thread was in (but not input, which is fetched ahead); else the host did other
    work. From the launch on it is the launch, what that loads (of over a millisecond), or the call that it was made in,
    if that blocks; of work that begins over a millisecond behind its call it is set-up or a profiler, else unknown.
    A gap after which nothing was launched is the host's. What the host worked and launched behind
    a wait is of the wait, see `_behind_waits`. Work of its own that lasts gets the span that it was in, see
    `innermost_around`. Where no launches are known at all, what `operators` of the host were open explains a gap.
    """
    gaps = _gaps_of(work, extent)
    launched = np.clip(gaps.launch, gaps.left, gaps.right)
    with_launch, without = (np.flatnonzero(mask) for mask in (gaps.launch != _NEVER, gaps.launch == _NEVER))
    before = _pieces(gaps.left, launched, with_launch, _HOST)
    inside, after = _within_launch(launched, gaps, with_launch, calls)
    after = _by_blocks(after, calls.loading)
    loading, after, late = _long_calls(after, work, gaps.row[after.gap])
    parts = [
        _by_calls(before, gaps.thread[before.gap], calls),
        inside,
        loading,
        after,
        _by_waits(late, gaps.thread[late.gap], calls),
    ]
    explained = _by_spans(_behind_waits(_concat(parts), gaps, calls.waits), gaps, spans)
    unknown = _pieces(gaps.left, gaps.right, without, _UNKNOWN)
    every = _concat([unknown if operators is None else _by_blocks(unknown, operators), explained])
    return _by_lane(every, gaps, extent[0], int(work["lane"].max() or 0) + 1)  # type: ignore[arg-type]


def _gaps_of(work: pl.DataFrame, extent: tuple[int, int]) -> _Gaps:
    lane, start = work["lane"].to_numpy(), work["start_ns"].to_numpy()
    end = start + work["duration_ns"].to_numpy()
    lanes = np.arange(int(lane.max(initial=-1)) + 1)
    line = Lanes.of(start, end, np.asarray(extent))
    bounds = [line.at(lanes, np.full(len(lanes), bound)) for bound in extent]
    left, right = gaps(np.concatenate((line.at(lane, start), *bounds)), np.concatenate((line.at(lane, end), *bounds)))
    own = line.lane(left) == line.lane(right)  # else it lies between two lanes
    left, right = left[own], right[own]
    return _with_launches(work, line, left, right, extent[1])


def _with_launches(work: pl.DataFrame, line: Lanes, left: Ints, right: Ints, last: int) -> _Gaps:
    """The gaps with when what ends each was launched (of several the first), on which thread, and its row.

    The gap at the end of a run has no launch to wait for: the host had until its end, if launches are known at all,
    on the thread that launched most.
    """
    lane, start = work["lane"].to_numpy(), work["start_ns"].to_numpy()
    call = work["call_start_ns"].fill_null(_NEVER).to_numpy()
    thread = work["call_thread_id"].fill_null(NO_THREAD).to_numpy()
    own = line.lane(right)
    position = line.at(lane, start)
    together = run_starts(position)  # work stands in order of lane and start
    lengths = np.diff(np.append(together, len(start)))
    first = np.lexsort((call, np.repeat(np.arange(len(together)), lengths)))[together]
    at = np.searchsorted(position[together], right)
    row = first[np.minimum(at, len(together) - 1)] if len(first) else np.full(len(right), -1)
    final = (at >= len(together)) | (lane[row] != own)
    launches, main_thread = _launching_threads(lane, thread, call != _NEVER, int(lane.max(initial=-1)) + 1)
    return _Gaps(
        own,
        line.time(left),
        line.time(right),
        np.where(final, np.where(launches[own], last, _NEVER), call[row]),
        np.where(final, main_thread[own], thread[row]),
        np.where(final, -1, row),
    )


def _launching_threads(lane: Ints, thread: Ints, with_launch: Bools, count: int) -> tuple[Bools, Ints]:
    """Of each lane whether launches are known, and the thread of most of them; of several the lowest."""
    main_thread = np.full(count, NO_THREAD)
    counts = pl.DataFrame({"lane": lane[with_launch], "thread": thread[with_launch]}).group_by("lane", "thread").len()
    first = counts.sort("lane", -pl.col("len").cast(pl.Int64), "thread").group_by("lane", maintain_order=True).first()
    main_thread[first["lane"].to_numpy()] = first["thread"].to_numpy()
    launches = np.zeros(count, dtype=np.bool_)
    launches[first["lane"].to_numpy()] = True
    return launches, main_thread


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of gaps, each with its cause and call, and which gap it is of."""

    start: Ints
    end: Ints
    cause: Ints
    call: Ints
    gap: Ints

    def of(self, rows: Ints | Bools) -> _Pieces:
        return _Pieces(self.start[rows], self.end[rows], self.cause[rows], self.call[rows], self.gap[rows])

    def give_to(self, blocks: Blocks, at: Ints) -> _Pieces:
        """These, each that lies in the block at this position (-1: in none) given to it."""
        inside = at >= 0
        cause, call = self.cause.copy(), self.call.copy()
        cause[inside], call[inside] = blocks.cause[at[inside]], blocks.call[at[inside]]
        return replace(self, cause=cause, call=call)

    def cut(self, edges: Ints, first: Ints, until: Ints) -> tuple[_Pieces, Ints]:
        """These divided, each at the edges from its `first` until, all of which lie within it; and which each is of."""
        number = until - first + 1
        of = np.repeat(np.arange(len(number)), number)
        nth = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
        parts = self.of(of)
        behind, before = nth > 0, nth < (number - 1)[of]
        parts.start[behind] = edges[(first[of] + nth - 1)[behind]]
        parts.end[before] = edges[(first[of] + nth)[before]]
        return parts, of


def _pieces(start: Ints, end: Ints, gap: Ints, cause: int) -> _Pieces:
    """What lies between the two times of each of these gaps, where that is anything."""
    gap = gap[start[gap] < end[gap]]
    return _Pieces(start[gap], end[gap], np.full(len(gap), cause), np.full(len(gap), -1), gap)


def _concat(parts: Sequence[_Pieces]) -> _Pieces:
    return _Pieces(*(np.concatenate([getattr(part, one) for part in parts]) for one in _Pieces.__slots__))


def _within_launch(launched: Ints, gaps: _Gaps, with_launch: Ints, calls: HostCalls) -> tuple[_Pieces, _Pieces]:
    """Idle time from launches on: in a call that blocks and launched itself (a pageable copy), and the rest."""
    at = np.full(len(launched), -1)
    at[with_launch] = calls.own_at(gaps.thread[with_launch], launched[with_launch])
    blocks = np.flatnonzero(at >= 0)
    until = launched.copy()
    until[blocks] = np.minimum(gaps.right[blocks], calls.own.end[at[blocks]])
    inside = _pieces(launched, until, with_launch, _LAUNCH)
    return inside.give_to(calls.own, at[inside.gap]), _pieces(until, gaps.right, with_launch, _LAUNCH)


def _by_calls(pieces: _Pieces, thread: Ints, calls: HostCalls) -> _Pieces:
    """The pieces, cut where calls begin and end, and given to that of their thread, else to that of another one."""
    parts, of = pieces.cut(calls.own_edges, *calls.own_edges_within(thread, pieces.start, pieces.end))
    thread = thread[of]
    edges = calls.edges_of_others
    cut, of = parts.cut(edges, np.searchsorted(edges, parts.start, side="right"), np.searchsorted(edges, parts.end))
    other = calls.others_at(thread[of], cut.start)
    first = run_starts(of, other)  # where the call is the same as before, its thread's own edge was none
    end = cut.end[np.append(first[1:], len(of)) - 1] if len(first) else cut.end
    cut, thread, other = replace(cut.of(first), end=end), thread[of[first]], other[first]
    return cut.give_to(calls.holding, other).give_to(calls.own, calls.own_at(thread, cut.start))


def _by_blocks(pieces: _Pieces, blocks: Blocks) -> _Pieces:
    edges = distinct_numbers(np.concatenate((blocks.start, blocks.end)))
    first = np.searchsorted(edges, pieces.start, side="right")
    parts, _ = pieces.cut(edges, first, np.searchsorted(edges, pieces.end))
    return parts.give_to(blocks, blocks.at(parts.start))


def _long_calls(pieces: _Pieces, work: pl.DataFrame, row: Ints) -> tuple[_Pieces, _Pieces, _Pieces]:
    """The pieces parted: those of loading, the rest, and those of work that waited beside an idle device.

    Launch calls of over a millisecond load what they launch, and it is loaded until it begins. Other work that begins
    over a millisecond behind its call waited. `row` is the work that ends the gap of each; -1: none does.
    """
    lasts = (work["call_end_ns"] - work["call_start_ns"]).fill_null(0).to_numpy()[row] > _LOADING_NS
    until = np.minimum(work["call_end_ns"].fill_null(0).to_numpy()[row], pieces.end)
    is_launch = (pieces.cause == _LAUNCH) & (row >= 0)
    late = is_launch & (pieces.end - np.maximum(pieces.start, until) > _LOADING_NS)
    until = np.where(late, pieces.end, until)
    loads = is_launch & lasts & (until > pieces.start)
    span = work["parent_id"].fill_null(-1).to_numpy()[row]
    loading = replace(
        pieces.of(loads), end=until[loads], cause=np.full(int(loads.sum()), _INITIALISATION), call=span[loads]
    )
    rest = replace(pieces, start=np.where(loads, until, pieces.start))
    late &= ~loads
    return loading, rest.of((rest.start < rest.end) & ~late), replace(rest, cause=np.full(len(late), _UNKNOWN)).of(late)


def _by_waits(pieces: _Pieces, thread: Ints, calls: HostCalls) -> _Pieces:
    """The pieces of work that waits, given to what the program set up or a profiler did meanwhile; else unknown.

    A call in which the host waited for this work is no cause: the work itself did not begin.
    """
    parts = _by_calls(pieces, thread, calls)
    is_cause = np.isin(parts.cause, (_INITIALISATION, _PROFILER))
    return replace(parts, cause=np.where(is_cause, parts.cause, _UNKNOWN), call=np.where(is_cause, parts.call, -1))


def _behind_waits(pieces: _Pieces, gaps: _Gaps, waits: tuple[Ints, Ints, Ints]) -> _Pieces:
    """The pieces, what the host worked and launched behind a wait given to it: the first that ends in the gap.

    Of each gap no more than the wait took: had it not been made, the host would have been earlier by that. Nor more
    than SHORT_GAP_NS: in a longer pause the host does work of its own, which it would do without the wait. A gap that
    nothing ends held up nothing.
    """
    ends, waited, call = waits
    at = np.minimum(np.searchsorted(ends, gaps.left), max(len(ends) - 1, 0))
    if not len(ends) or not len(pieces.start):
        return pieces
    waits_within = (ends[at] >= gaps.left) & (ends[at] < gaps.right) & (gaps.row >= 0)
    pieces = pieces.of(np.lexsort((pieces.start, pieces.gap)))
    at = at[pieces.gap]
    begin = np.maximum(pieces.start, ends[at])
    length = np.where(_is_work(pieces) & waits_within[pieces.gap], np.maximum(pieces.end - begin, 0), 0)
    starts, total = run_starts(pieces.gap), np.cumsum(length) - length
    taken = total - np.repeat(total[starts], np.diff(np.append(starts, len(total))))
    until = begin + np.clip(np.minimum(waited[at], SHORT_GAP_NS) - taken, 0, length)
    is_behind = until > begin
    behind = pieces.of(is_behind)
    parts = (
        replace(pieces, end=np.where(is_behind, begin, pieces.end)),
        replace(behind, start=begin[is_behind], end=until[is_behind], cause=np.full(len(behind.start), _BEHIND_WAIT),
                call=call[at[is_behind]]),
        replace(behind, start=until[is_behind]),
    )  # fmt: skip
    every = _concat(parts)
    return every.of(every.start < every.end)


def _by_spans(pieces: _Pieces, gaps: _Gaps, spans: pl.DataFrame) -> _Pieces:
    long = np.flatnonzero((pieces.cause == _HOST) & (pieces.call < 0) & (pieces.end - pieces.start > SHORT_GAP_NS))
    call = pieces.call.copy()
    thread = gaps.thread[pieces.gap[long]]
    call[long] = innermost_around(spans, thread, pieces.start[long], pieces.end[long])
    return replace(pieces, call=call)


def _by_lane(pieces: _Pieces, gaps: _Gaps, begin: int, count: int) -> list[IdleTime]:
    of = gaps.lane[pieces.gap]
    order = np.lexsort((pieces.start, of))
    pieces, of = pieces.of(order), of[order]
    is_short = (gaps.right - gaps.left <= SHORT_GAP_NS) & (gaps.left > begin) & (gaps.row >= 0)  # work on both sides
    behind = pieces.cause == _BEHIND_WAIT
    idle = IdleTime(
        pieces.start, pieces.end, np.where(behind, _SYNC, pieces.cause), pieces.call,
        is_launching=_is_work(pieces) & is_short[pieces.gap], is_behind_wait=behind,
    )  # fmt: skip
    bounds = np.searchsorted(of, np.arange(count + 1))
    return [idle.of(np.arange(first, last)) for first, last in pairwise(bounds.tolist())]


def _is_work(pieces: _Pieces) -> Bools:
    """Which are the host's own work, which no call explains, or a launch."""
    return np.asarray((pieces.cause == _LAUNCH) | ((pieces.cause == _HOST) & (pieces.call < 0)))
