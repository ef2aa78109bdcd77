"""On one thread, a span's parent is the innermost span of its own or an outer level that holds its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.machine.functions import CompiledFunction
from xsp_ingest.machine.sweep import dual
from xsp_model.columns.arrays import no_refs, release
from xsp_model.columns.tree import has_equal_neighbour
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["NESTING", "SLACK_NS", "Moments", "Nesting", "moments_apart", "nest"]

SLACK_NS = 1_000
"""Profilers round: an end may overhang its parent's by this much and still count as nested."""

NESTING = CompiledFunction(
    "nesting",
    "_sweep",
    ("int32", "int64", "int64", "int8", "int64", "int32", "int64", *("int32",) * 2, *("uint8",) * 2, *("int32",) * 2),
    (__name__,),
)

_RELEASED = 1 << 20


@dataclass(frozen=True, slots=True)
class Moments:
    """Points in time on threads (-1 is none), in any order."""

    thread: NDArray[np.int32]
    time: Ints


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each span its parent's position or -1, whether it overhangs it, and whether another parent was possible.

    `around` is the innermost span of any level that was open at its start, or -1; `owner` for each moment likewise.
    """

    parent: Positions
    around: Positions
    overhangs: Bools
    ambiguous: Bools
    owner: Positions


_NONE = Moments(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))


def nest(
    thread: NDArray[np.int32],
    start: Ints,
    end: Ints,
    rank: NDArray[np.int8],
    *,
    threads: int,
    moments: Moments = _NONE,
    ties: Sequence[NDArray[Any]] = (),
    opening: NDArray[np.int8] | None = None,
) -> Nesting:
    """Nests the spans of each thread (0..threads-1; -1: on none); `rank` is the level's, outermost 0.

    Spans must be in order of start; intervals are half open. Of spans that start together the one of smaller `opening`
    (None: the outer level), then the longer one, then the one of smaller `ties`, then the earlier row is outside. A
    span whose `end` is its `start` is nobody's parent. O(n), no Python per span on large inputs.
    """
    order = np.argsort(moments.time, kind="stable")
    on, times = moments.thread[order], moments.time[order]
    parent, below = no_refs(len(start)), no_refs(len(start))
    overhangs, ambiguous = (np.zeros(len(start), dtype=np.uint8) for _ in range(2))
    owned, top = np.full(len(order), -1, dtype=parent.dtype), np.full(threads, -1, dtype=parent.dtype)
    done = 0
    for piece in moments_apart(start):
        stop = np.searchsorted(times, start[piece.stop]) if piece.stop < len(start) else len(times)
        points = slice(done, int(stop))  # those before the first span of the next part
        results = (parent, below, overhangs, ambiguous, owned[points], top)
        visit = _visits(piece, start, end, rank if opening is None else opening, ties)
        _sweep.into(results, thread, start, end, rank, visit, on[points], times[points])
        done = int(stop)
    owner = np.empty_like(owned)
    owner[order] = owned
    return Nesting(parent, below, overhangs.view(np.bool_), ambiguous.view(np.bool_), owner)


def moments_apart(start: Ints) -> Iterator[slice]:
    """Slices that cover all spans, those that start together in one; one slice where there are none."""
    first, since, spans = 0, 0, limits().nesting_piece_spans
    while first < max(len(start), 1):
        stop = min(first + spans, len(start))
        if stop < len(start):
            stop = first + int(np.searchsorted(start[first:], start[stop - 1], side="right"))
        yield slice(first, stop)
        since += spans
        if since >= _RELEASED:
            release()
            since = 0
        first = max(stop, 1)
    release()


def _visits(piece: slice, start: Ints, end: Ints, rank: NDArray[np.int8], ties: Sequence[NDArray[Any]]) -> Ints:
    """Rows of the piece from the outermost in: their own order but where several start together."""
    visit = np.arange(piece.start, piece.stop)
    together = piece.start + np.flatnonzero(has_equal_neighbour(start[piece]))
    if len(together):
        last = [each[together] for each in reversed(ties)]
        by = np.lexsort((together, *last, -end[together], rank[together], start[together]))
        visit[together - piece.start] = together[by]
    return visit


@dual(NESTING)
def _sweep(
    thread: Ints,
    start: Ints,
    end: Ints,
    rank: Ints,
    visit: Ints,
    moment_thread: Ints,
    moment_time: Ints,
    parent: Ints,
    below: Ints,
    overhangs: Ints,
    ambiguous: Ints,
    owner: Ints,
    top: Ints,
) -> None:
    """A stack of open spans a thread: a closed one below an open one is passed over, not yet dropped.

    A span overhangs its parent where it ends later, and is in doubt where its parent overhangs one that still runs.
    """
    m = 0
    for v in range(len(visit) + 1):
        i = visit[v] if v < len(visit) else -1
        while m < len(moment_time) and (i < 0 or moment_time[m] < start[i]):
            if moment_thread[m] >= 0 and moment_thread[m] < len(top):
                j = top[moment_thread[m]]
                while j >= 0 and end[j] <= moment_time[m]:
                    j = below[j]
                owner[m] = j
            m += 1
        if i < 0 or thread[i] < 0 or thread[i] >= len(top):
            continue
        j = top[thread[i]]
        while j >= 0 and end[j] <= start[i]:
            j = below[j]
        below[i] = j
        top[thread[i]] = i
        while j >= 0 and (end[j] <= start[i] or rank[j] > rank[i]):
            j = below[j]
        parent[i] = j
        overhangs[i] = j >= 0 and end[i] > end[j] + SLACK_NS
        ambiguous[i] = j >= 0 and overhangs[j] != 0 and end[parent[j]] > start[i]
