"""What host threads did, as stretches between points in time: in which span each was, and which thread woke which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, numbers_in_order
from xsp_analyze.frames.host_calls import INPUT_CALLS, names_like
from xsp_model import Kind, Level, Phase
from xsp_model.columns.tree import depths

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Floats, Ints

__all__ = [
    "HandOvers",
    "HostThreads",
    "Points",
    "Stretches",
    "hand_overs",
    "host_bounds",
    "host_stretches",
    "host_threads",
    "is_busy",
]

_HOST_LEVELS = [str(level) for level in Level if level is not Level.KERNEL]
_BUSY_LEVELS = [str(level) for level in (Level.OPERATOR, Level.LIBRARY, Level.RUNTIME)]
THREAD = ("run_id", "process_id", "thread_id")
_NONE, _AS_BEFORE = -1, -2
_DEPTHS = 1 << 9  # deeper spans count as this deep where they begin or end together
_QUIET_NS = 15_000  # shorter, and a thread only went from call to call
_MIN_BUSY_SHARE = 0.5  # of a thread's quiet, that the one that wakes it worked
_MIN_PART = 0.05  # of the work of the busiest: those that do less watch in the background
_MAX_THREADS = 24  # of one process: the busiest, as each is held against each
_WAKING_NS = 1_000_000  # after which a thread begins at the latest, once it is woken
_MOSTLY = 0.5  # of a thread's operators: it runs the backward pass for another


@dataclass(frozen=True, slots=True)
class HostThreads:
    """The spans of host threads, in order of start; `thread` numbers those of all runs, `keys` say which each is."""

    spans: pl.DataFrame
    thread: Ints
    depth: Ints
    keys: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Points:
    """Moments on threads at which something waits for another thing, or is waited for, by thread and time."""

    thread: Ints
    time: Ints


@dataclass(frozen=True, slots=True)
class Stretches:
    """Parts of the time of threads in order: `owner` is the row of the innermost span (-1: none).

    `point` is how many of the points, which cut them, are before each.
    """

    thread: Ints
    start: Ints
    end: Ints
    owner: Ints
    point: Ints


@dataclass(frozen=True, slots=True)
class _Runs:
    """Stretches of threads in which they were not quiet for long; `busy` is how much of each they worked."""

    thread: Ints
    start: Ints
    end: Ints
    busy: Ints


@dataclass(frozen=True, slots=True)
class HandOvers:
    """Threads quiet since `since` that woke at `wake`, when another (`giver`) had ended its work at `ended`.

    `is_backward`: one of the two runs the backward pass for the other, by names of operators; the rest is guessed.
    """

    thread: Ints
    since: Ints
    wake: Ints
    giver: Ints
    ended: Ints
    is_backward: Bools


def host_threads(view: TraceView) -> HostThreads:
    """The threads of the runs that kernels are taken from."""
    spans = (
        view.kernel_runs.scan("spans")
        .filter(
            pl.col("level").is_in(_HOST_LEVELS),
            pl.col("kind") != str(Kind.SYNC),
            pl.col("duration_ns").is_not_null(),
        )
        .select("span_id", "parent_id", *THREAD, "level", "kind", "name", "phase", "step", "start_ns",
                (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
        .collect()
    )  # fmt: skip
    number, first = numbers_in_order(*group_ids(spans.select(THREAD), ordered=True))
    parent = view.trace.scan("spans").select("parent_id").collect().to_series().fill_null(_NONE).to_numpy()
    return HostThreads(spans, number, depths(parent)[spans["span_id"].to_numpy()], spans.select(THREAD)[first])


def host_stretches(threads: HostThreads, points: Points | None = None) -> Stretches:
    """The time of each thread from its first span to its last, cut where spans begin and end and at the points."""
    start, end = (threads.spans[c].to_numpy() for c in ("start_ns", "end_ns"))
    lasting = np.flatnonzero(end > start)
    depth = np.minimum(threads.depth[lasting], _DEPTHS - 1)
    around = _spans_around(threads)[lasting]
    at = Points(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)) if points is None else points
    thread = np.concatenate((threads.thread[lasting], threads.thread[lasting], at.thread))
    time = np.concatenate((end[lasting], start[lasting], at.time))
    rank = np.concatenate((_DEPTHS - depth, _DEPTHS + 1 + depth, np.full(len(at.time), 2 * _DEPTHS + 1)))
    owner = np.concatenate((around, lasting, np.full(len(at.time), _AS_BEFORE)))
    order = _sort_moments(thread, time, rank)
    thread, time, owner = thread[order], time[order], owner[order]
    passed = np.cumsum(order >= 2 * len(lasting), dtype=np.int64)
    own = np.maximum.accumulate(np.where(owner == _AS_BEFORE, -1, np.arange(len(owner))))
    owner = np.where(own >= 0, owner[np.maximum(own, 0)], _NONE) if len(owner) else owner
    piece = np.flatnonzero((thread[1:] == thread[:-1]) & (time[1:] > time[:-1]))
    return Stretches(thread[piece], time[piece], time[piece + 1], owner[piece], passed[piece])


def _sort_moments(thread: Ints, time: Ints, rank: Ints) -> Ints:
    """By thread, then time, then rank."""
    low = int(time.min()) if len(time) else 0
    order = np.argsort((time - low) * (4 * _DEPTHS) + rank, kind="stable")
    narrow = thread[order].astype(np.int16 if not len(thread) or thread.max() < 1 << 15 else np.int64)
    return order[np.argsort(narrow, kind="stable")]


def _spans_around(threads: HostThreads) -> Ints:
    """The row of each span's parent, where that is a span of the same thread; else -1."""
    spans = threads.spans
    ids, parent = spans["span_id"].to_numpy(), spans["parent_id"].fill_null(_NONE).to_numpy()
    row = np.full(int(max(ids.max(initial=0), parent.max(initial=0))) + 2, _NONE)
    row[ids] = np.arange(len(ids))
    around = row[parent]
    return np.where((around >= 0) & (threads.thread[around] == threads.thread), around, _NONE)


def is_busy(threads: HostThreads) -> Bools:
    """Of each span whether a thread in it works: in operators and calls, not in steps, ranges and modules."""
    spans = threads.spans
    calls = spans.select(pl.col("level").is_in(_BUSY_LEVELS) & (pl.col("kind") != str(Kind.RANGE)))
    return calls.to_series().to_numpy()


def hand_overs(threads: HostThreads, stretches: Stretches) -> HandOvers:
    """Where a thread that was quiet wakes after another one has ended its work, and is quiet from then on.

    The other has worked for most of that quiet, or, where one of them runs the backward pass for the other, until just
    before; a thread's first quiet is all time since the process's first work.
    """
    busy, owner, engine = is_busy(threads), stretches.owner, _engines(threads)
    names = threads.spans["name"]
    fetching = names_like(names.unique(), lambda name: name.str.contains(INPUT_CALLS))
    works = _in_any(owner, busy | names.is_in(fetching.implode()).to_numpy())
    runs = _busy_runs(stretches, works)
    alone = np.where(_in_any(owner, busy), stretches.end - stretches.start, 0)
    time = np.bincount(stretches.thread, weights=alone, minlength=threads.keys.height).astype(np.float64)
    heads = host_bounds(threads)[1]
    wakes = [each for members in _processes(threads, time) for each in _wakes(members, runs, engine, heads)]
    nothing = (np.empty(0, dtype=np.int64) for _ in range(5))
    thread, since, wake, giver, ended = map(np.concatenate, zip(*wakes, strict=True)) if wakes else nothing
    return HandOvers(thread, since, wake, giver, ended, engine[thread] != engine[giver])


def _in_any(owner: Ints, spans: Bools) -> Bools:
    """Of each stretch whether its innermost span is one of these."""
    return np.asarray((owner >= 0) & spans[np.maximum(owner, 0)] if len(spans) else owner >= 0)


def _engines(threads: HostThreads) -> Bools:
    """Of each thread whether it runs backward passes: most of its operators are of one."""
    is_operator = (pl.col("level") == str(Level.OPERATOR)).alias("every")
    is_backward = (is_operator & (pl.col("phase") == str(Phase.BACKWARD))).alias("backward")
    spans = threads.spans.select(is_operator, is_backward)
    every, backward = (
        np.bincount(threads.thread, column.fill_null(value=False).to_numpy(), threads.keys.height)
        for column in spans.get_columns()
    )
    return np.asarray(backward > _MOSTLY * every)


def _busy_runs(stretches: Stretches, works: Bools) -> _Runs:
    """Stretches of work, those put together between which a thread was not quiet for long."""
    at = np.flatnonzero(works)
    thread, start, end = stretches.thread[at], stretches.start[at], stretches.end[at]
    apart = (thread[1:] != thread[:-1]) | (start[1:] - end[:-1] >= _QUIET_NS)
    first = np.concatenate(([0], np.flatnonzero(apart) + 1)) if len(at) else at
    last = np.append(first[1:], len(at))[: len(first)] - 1
    total = np.concatenate(([0], np.cumsum(end - start)))
    return _Runs(thread[first], start[first], end[last], total[last + 1] - total[first])


def _processes(threads: HostThreads, time: Floats) -> list[list[int]]:
    """The threads of each process that has several that worked, busiest first; none that only looks around at times.

    `time` is what each spent in operators and calls; a wait for input is none, however long it is.
    """
    process, _ = group_ids(threads.keys.select("run_id", "process_id"))
    worked = [int(each) for each in np.argsort(-time, kind="stable") if time[each] > 0]
    members: dict[int, list[int]] = {}
    for each in worked:
        own = members.setdefault(int(process[each]), [each])
        if each not in own and time[each] >= _MIN_PART * time[own[0]]:
            own.append(each)
    return [each[:_MAX_THREADS] for each in members.values() if len(each) > 1]


def _wakes(members: list[int], runs: _Runs, engine: Bools, heads: Ints) -> list[tuple[Ints, ...]]:
    """For each of the threads the columns of HandOvers, but the last."""
    bounds = {each: np.searchsorted(runs.thread, [each, each + 1]) for each in members}
    of = {each: slice(*bounds[each].tolist()) for each in members}
    columns: list[tuple[Ints, ...]] = []
    begin = min(int(runs.start[of[each].start]) for each in members)
    for each in members:
        wake = runs.start[of[each]]
        since = np.concatenate(([begin], runs.end[of[each]][:-1]))
        latest, giver = np.full(len(wake), _NONE), np.full(len(wake), _NONE)
        for other in members:
            if other == each:
                continue
            ended = _last_end_before(runs, of[other], since, wake, is_surely=bool(engine[each] != engine[other]))
            later = ended > latest
            latest, giver = np.where(later, ended, latest), np.where(later, other, giver)
        rows = np.flatnonzero(giver >= 0)
        begun = np.maximum(since[rows], heads[each])  # a thread is nowhere before its first span
        columns.append((np.full(len(rows), each), begun, wake[rows], giver[rows], latest[rows]))
    return columns


def _last_end_before(runs: _Runs, of: slice, since: Ints, wake: Ints, *, is_surely: bool) -> Ints:
    """When the other thread's work of each quiet ended, where it did before the wake and was most of it; else -1.

    Of threads that surely wake each other it is enough that it ended not long ago.
    """
    start, end, busy = runs.start[of], runs.end[of], runs.busy[of]
    at = np.searchsorted(end, wake, side="right") - 1
    ended = np.where(at >= 0, end[np.maximum(at, 0)], _NONE)
    quiet = np.append(start, np.iinfo(np.int64).max)[at + 1] >= wake
    total = np.concatenate(([0], np.cumsum(busy)))
    before = np.searchsorted(end, since, side="right")
    inside = total[at + 1] - total[np.minimum(before, at + 1)]
    share = inside >= _MIN_BUSY_SHARE * (wake - since)
    share |= is_surely & (wake - ended <= _WAKING_NS)
    return np.where((at >= 0) & quiet & (ended > since) & share, ended, _NONE)


def host_bounds(threads: HostThreads) -> tuple[Ints, Ints, Ints]:
    """Each thread, when its first span begins, and when its last ends."""
    spans = threads.spans.select("start_ns", "end_ns", thread=pl.Series(threads.thread, dtype=pl.Int64))
    bounds = spans.group_by("thread").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("thread")
    thread, first, last = (bounds[c].to_numpy() for c in ("thread", "start_ns", "end_ns"))
    return thread, first, last
