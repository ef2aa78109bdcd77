"""Rule 3: spans nest by their levels, and named ranges lie between them without parting what belongs together."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.link.nest import SLACK_NS, Moments, Nesting, nest
from xsp_model import Kind, Level, scratch
from xsp_model.arrays import true_indices
from xsp_model.limits import limits
from xsp_model.order import has_equal_neighbour
from xsp_model.tree import innermost, jumps
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_ingest.link.span_kinds import SpanKinds
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["named_ranges", "nest_with_ranges"]

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
    """As `nest`, but a range lies in the innermost span around it, and holds all that begins in it, of any level.

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
    for piece in scratch.pieces(len(ranges)):
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
