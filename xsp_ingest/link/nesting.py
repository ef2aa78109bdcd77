"""Rule 3: spans nest by their levels, and named ranges lie between them without parting what belongs together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_ingest.link.nest import SLACK_NS, Moments, Nesting, nest
from xsp_ingest.link.spans import matches
from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.columns.arrays import distinct_numbers, empty, lookup, pieces, true_indices
from xsp_model.columns.tree import MAX_DEPTH, depths, has_equal_neighbour, innermost, jumps
from xsp_model.limits import limits
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.spans import SpanKinds
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "Threads",
    "closed_elsewhere",
    "named_ranges",
    "nest_with_ranges",
    "with_limited_depth",
    "with_open_ranges",
    "with_replicas",
]

_OUTERMOST = 0
_LIBRARY = LEVELS.index(Level.LIBRARY)


def named_ranges(kinds: SpanKinds) -> Bools:
    """Which spans are ranges or steps that a program or a library named."""
    return kinds.is_kind(Kind.RANGE) | kinds.is_kind(Kind.STEP)


def nest_with_ranges(
    thread: NDArray[np.int32],
    start: Ints,
    end: Ints,
    level: NDArray[np.int8],
    is_range: Bools,
    *,
    threads: int,
    moments: Moments,
    ties: Sequence[NDArray[Any]] = (),
) -> Nesting:
    """Like `nest`, but a range lies in the innermost span around it, and holds all that begins in it, of any level.

    A library's own range holds deeper levels only. What lies in what, ranges aside, is as it would be without them: a
    range holds nothing in a span that it began in and outlasts, only what begins after that span.
    """
    if not is_range.any():
        return nest(thread, start, end, level, threads=threads, moments=moments, ties=ties)
    rank = np.where(is_range & (level < _LIBRARY), level.dtype.type(_OUTERMOST), level)
    opening = _opening(thread, start, end, level, is_range)
    first = _nest_any_order(start, end, (thread, rank, opening, level, *ties), threads, moments)
    ranges = true_indices(is_range)
    begin, until = _within(ranges, start, end, is_range, first.around)
    outlasts = begin > start[ranges]
    nesting = first
    if outlasts.any() or _begins(start, until, end[ranges]).any():
        starts, ends = start.copy(), end.copy()
        starts[ranges], ends[ranges] = begin, until
        opening[ranges[outlasts]] = -1  # what begins when such a range may hold begins in it
        nesting = _nest_any_order(starts, ends, (thread, rank, opening, level, *ties), threads, moments)
    parent, overhangs = nesting.parent.copy(), nesting.overhangs.copy()
    parent[ranges] = _holders(ranges, nesting.around, start)
    overhangs[ranges] |= outlasts
    doubtful = nesting.ambiguous | ((first.parent != nesting.parent) & ~is_range)
    return Nesting(parent, nesting.around, overhangs, doubtful, nesting.owner)


def _nest_any_order(
    start: Ints, end: Ints, columns: tuple[NDArray[Any], ...], threads: int, moments: Moments
) -> Nesting:
    """`nest` of spans in any order of start; columns are thread, rank, opening and ties."""
    in_order = bool((start[1:] >= start[:-1]).all())
    if in_order:
        thread, rank, opening, *ties = columns
        return nest(thread, start, end, rank, threads=threads, moments=moments, ties=ties, opening=opening)
    order = np.argsort(start, kind="stable")
    thread, rank, opening, *ties = (column[order] for column in columns)
    made = nest(thread, start[order], end[order], rank, threads=threads, moments=moments, ties=ties, opening=opening)
    inverse = np.argsort(order)
    row: Positions = np.append(order, -1).astype(made.parent.dtype)  # -1 reads the last
    return Nesting(
        row[made.parent][inverse],
        row[made.around][inverse],
        made.overhangs[inverse],
        made.ambiguous[inverse],
        row[made.owner],
    )


def _opening(
    thread: NDArray[np.int32], start: Ints, end: Ints, level: NDArray[np.int8], is_range: Bools
) -> NDArray[np.int8]:
    """In which order spans that start together open: by level, and a range just before those that end by its end."""
    out = level.copy()
    at = true_indices(has_equal_neighbour(start))
    if not is_range[at].any():
        return out
    group = np.unique(np.stack([start[at], thread[at].astype(np.int64)]), axis=1, return_inverse=True)[1].ravel()
    ranges = is_range[at]
    opening = np.where(ranges, level.dtype.type(_LIBRARY), level[at])
    for rank in range(_LIBRARY + 1, -1, -1):
        others = ~ranges & (level[at] == rank)
        shortest = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(shortest, group[others], end[at][others])
        opening[ranges & (shortest[group] <= end[at])] = rank
    out[at] = opening
    return out


def _within(ranges: Positions, start: Ints, end: Ints, is_range: Bools, around: Positions) -> tuple[Ints, Ints]:
    """From when to when each range may hold: it does not part a span that it began in and ends after.

    Where it ends after by no more than rounding, it ends with that span; else it holds what begins behind it.
    """
    begin, until = start[ranges], end[ranges]
    shortcuts: tuple[Positions, Ints] | None = None
    deep = limits().shortcut_min_steps
    for piece in pieces(len(ranges)):
        row = np.arange(piece.start, piece.stop)
        up = around[ranges[piece]]
        for steps in count():
            if steps == deep:
                shortcuts = shortcuts or _shortcuts(end, is_range, around)
            if steps >= deep and shortcuts:
                nearest, earliest = shortcuts
                up = np.where(up >= 0, nearest[up], -1)
                up[earliest[up] >= end[ranges[row]]] = -1  # nothing further out ends before the range does
            row, up = row[up >= 0], up[up >= 0]
            if not len(row):
                break
            at = ranges[row]
            outlasted = ~is_range[up] & (end[up] > start[at]) & (end[up] < end[at])
            rounded = outlasted & (end[up] + SLACK_NS >= end[at])
            until[row[rounded]] = np.minimum(until[row[rounded]], end[up[rounded]])
            late = outlasted & ~rounded
            begin[row[late]] = np.maximum(begin[row[late]], end[up[late]])
            up = around[up]
    return begin, np.maximum(until, begin)


def _shortcuts(end: Ints, is_range: Bools, around: Positions) -> tuple[Positions, Ints]:
    """For each span the nearest that is no range, and the earliest end of any such, among it and those around it."""
    earliest = np.where(is_range, np.iinfo(np.int64).max, end)
    for rows, up in jumps(around):
        earliest[rows] = np.minimum(earliest[rows], earliest[up])
    return innermost(around, ~is_range), earliest


def _begins(start: Ints, first: Ints, last: Ints) -> Bools:
    """Whether any span starts in each interval, which are half open."""
    rounded = np.flatnonzero(first < last)
    out = np.zeros(len(first), dtype=np.bool_)
    out[rounded] = np.searchsorted(start, first[rounded]) < np.searchsorted(start, last[rounded])
    return out


def _holders(ranges: Positions, around: Positions, start: Ints) -> Positions:
    """The innermost span around each range that began no later; -1: none."""
    up = around[ranges]
    while (later := np.flatnonzero((up >= 0) & (start[up] > start[ranges]))).size:
        up[later] = around[up[later]]
    return up


# Spans nested deeper than any program nests: the chain of parents is cut, so that no path grows with the file.

_BLOCK = MAX_DEPTH // 2  # Python by itself stops at about 330 modules, each of three calls, in one another


def with_limited_depth(parent: Positions) -> tuple[Positions, int]:
    """The parents, so that fewer than MAX_DEPTH spans are above each, and how many spans were deeper.

    The outer half of the levels is as it was. Of what is below, every so many levels together hang under the last of
    that half: nearly all spans keep their own parent, on which rest the names and the layers of device work.
    """
    if not _is_deep(parent):
        return parent, 0
    depth = depths(parent)
    heads = (depth >= MAX_DEPTH) & (depth % _BLOCK == 0)
    limited = parent.copy()
    limited[heads] = innermost(parent, depth == _BLOCK - 1)[heads]
    return limited, int((depth >= MAX_DEPTH).sum())


def _is_deep(parent: Positions) -> bool:
    """Whether any span has so many above it; in most traces a few rounds see that none has."""
    return any(2**doubled >= MAX_DEPTH for doubled, _ in enumerate(jumps(parent)))


# Small integers for the threads of a run, so that sweeps can keep a stack for each.

_UNKNOWN = -(1 << 63)  # a process or thread that the file does not name is one of its own


@dataclass(frozen=True, slots=True)
class Threads:
    """The processes and threads that occur; a thread's number is its process's index times `len(threads)` plus its."""

    processes: Ints
    threads: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Threads:
        """The threads of rows with `process_id` and `thread_id`."""
        return cls(*(_numbers(rows[name].unique()) for name in ("process_id", "thread_id")))

    @property
    def count(self) -> int:
        """How many numbers there may be; the last is of those that are unknown."""
        return len(self.processes) * len(self.threads) + 1

    def numbers(self, rows: pl.DataFrame) -> NDArray[np.int32]:
        """For each row the number of its thread."""
        out: NDArray[np.int32] = empty(rows.height, np.int32)
        for piece in pieces(rows.height):
            part = rows[piece]
            process, has_process = _indices(self.processes, part["process_id"])
            thread, has_thread = _indices(self.threads, part["thread_id"])
            number = process * len(self.threads) + thread
            out[piece] = np.where(has_process & has_thread, number, self.count - 1)
        return out


def _numbers(values: pl.Series) -> Ints:
    return np.sort(values.fill_null(_UNKNOWN).to_numpy())


def _indices(sorted_numbers: Ints, values: pl.Series) -> tuple[Ints, NDArray[np.bool_]]:
    searched = values.fill_null(_UNKNOWN).to_numpy()
    if not len(sorted_numbers):
        return np.zeros(len(searched), dtype=np.int64), np.zeros(len(searched), dtype=np.bool_)
    if len(sorted_numbers) == 1:
        return np.zeros(len(searched), dtype=np.int64), searched == sorted_numbers[0]
    indices = np.minimum(np.searchsorted(sorted_numbers, searched), len(sorted_numbers) - 1)
    return indices, sorted_numbers[indices] == searched


# What threads run that live only in calls of `nn.DataParallel`: its replicas.

_START_END, _LONGEST_NS = "StartEnd", 1 << 61
_CALL = r"^(nn\.Module: )?DataParallel(_\d+|\.forward)$"


def with_replicas(spans: pl.DataFrame, kinds: SpanKinds, parent: Positions) -> Positions:
    """Parents in which a thread's outermost spans are children of the call of DataParallel that they ran in.

    It starts a thread a replica and waits for them. So the threads are those that do something in its calls alone.
    """
    calls = np.flatnonzero(matches(spans["name"], _CALL) & (kinds.is_kind(Kind.MODULE) | named_ranges(kinds)))
    if not len(calls):
        return parent
    host = ~kinds.is_level(Level.KERNEL) & ~kinds.is_kind(Kind.SYNC)
    call = _calls_around(spans, calls)
    threads = Threads.of(spans.select("process_id", "thread_id"))
    thread = threads.numbers(spans)
    elsewhere = np.zeros(threads.count, dtype=np.bool_)
    elsewhere[[threads.count - 1, *np.unique(thread[calls])]] = True  # those unknown, and those that call
    elsewhere[thread[host & (call < 0)]] = True
    out = parent.copy()
    roots = np.flatnonzero(host & (parent < 0) & (call >= 0))
    roots = roots[~elsewhere[thread[roots]]]
    out[roots] = call[roots]
    return out


def closed_elsewhere(spans: pl.DataFrame, ranges: pl.DataFrame) -> Positions:
    """Positions of the ranges that another thread closed."""
    closed = ranges.filter(pl.col("end_thread_id").is_not_null()).select("row", "end_thread_id")
    if closed.is_empty():
        return np.zeros(0, dtype=np.int64)
    at = lookup(spans["row"].to_numpy(), closed["row"].to_numpy())
    own = spans["thread_id"].gather(at[at >= 0])
    by = closed["end_thread_id"].filter(pl.Series(at >= 0))
    elsewhere: Positions = at[at >= 0][(own.is_null() | (own != by)).to_numpy()]
    return elsewhere


def with_open_ranges(
    spans: pl.DataFrame, kinds: SpanKinds, ranges: pl.DataFrame, parent: Positions
) -> tuple[Positions, list[Finding]]:
    """Parents in which what nothing on its thread holds is in the start/end range that was open in its process.

    Of ranges in one another that is the innermost; where several that cross were open none is, which is said. Ranges
    themselves stay where they are: what else is marked may well run beside.
    """
    styled = ranges.filter(pl.col("style").cast(pl.String) == _START_END)["row"]
    opened = lookup(spans["row"].to_numpy(), styled.to_numpy())
    opened = np.sort(opened[(opened >= 0) & (kinds.level[opened] < _LIBRARY)])
    if not len(opened):
        return parent, []
    is_host = ~kinds.is_level(Level.KERNEL) & ~kinds.is_kind(Kind.SYNC)
    at = distinct_numbers(np.concatenate((opened, np.flatnonzero(is_host & (parent < 0) & ~named_ranges(kinds)))))
    has_range, elsewhere = np.isin(at, opened), closed_elsewhere(spans, ranges)
    apart = np.isin(at, elsewhere)
    rows = spans.select("process_id", "start_ns", pl.col("duration_ns").fill_null(_LONGEST_NS))[at]
    processes = rows["process_id"].fill_null(_UNKNOWN).rank("dense").to_numpy().astype(np.int32) - 1
    start = rows["start_ns"].to_numpy()
    end = start + np.where(has_range, rows["duration_ns"].to_numpy(), 0)  # what is no such range holds nothing
    rank = np.where(has_range, 0, 1).astype(np.int8)
    nesting = nest(processes, start, end, rank, threads=int(processes.max()) + 1)
    thread, over = Threads.of(spans.select("process_id", "thread_id")).numbers(spans[at]), nesting.parent
    moved = (over >= 0) & ~has_range & (apart[over] | (thread[over] != thread)) & (start[over] < start)
    crossed = moved & nesting.ambiguous
    out = parent.copy()
    out[at[moved & ~crossed]] = at[over[moved & ~crossed]]
    calls = true_indices(kinds.is_level(Level.RUNTIME))
    during = _calls_during(spans, opened[np.isin(opened, elsewhere)], calls)
    idle = during[~np.isin(during, out)]
    detail = "start/end ranges closed by another thread, in which nothing counts: other ranges hold the calls meanwhile"
    return out, [
        Finding(LedgerKind.RANGES_CROSS, count=int(crossed.sum())),
        Finding(LedgerKind.RANGES_CROSS, detail, len(idle)),
    ]


def _calls_during(spans: pl.DataFrame, ranges: Positions, calls: Positions) -> Positions:
    """The ranges in whose time their process made any of the calls."""
    columns = spans.select("process_id", "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    first = columns[calls].sort("start_ns")
    met = columns[ranges].with_columns(pl.Series("at", ranges)).sort("start_ns").join_asof(
        first.select("process_id", "start_ns", called="start_ns"), on="start_ns", by="process_id", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    return met.filter(pl.col("called") < pl.col("end_ns"))["at"].to_numpy()


def _calls_around(spans: pl.DataFrame, calls: Ints) -> Positions:
    """For each span the innermost of the calls in whose time its process ran it, on whichever thread; -1: none."""
    start, process = spans["start_ns"].to_numpy(), spans["process_id"].fill_null(-1).to_numpy()
    end = start + spans["duration_ns"].fill_null(0).to_numpy()
    out = np.full(len(start), -1, dtype=np.int64)
    for call in calls:  # outer ones first
        window = slice(int(np.searchsorted(start, start[call])), int(np.searchsorted(start, end[call])))
        inside: Bools = (process[window] == process[call]) & (end[window] <= end[call] + SLACK_NS)
        out[window][inside] = call
    return out
