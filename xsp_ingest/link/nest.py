"""Rule 3: on one thread, a span's parent is the innermost span of its own or an outer level that holds its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.link.engine import dual
from xsp_model import scratch
from xsp_model.arrays import nowhere
from xsp_model.order import tied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["SLACK_NS", "Moments", "Nesting", "nest"]

SLACK_NS = 1_000
"""Profilers round: an end may overhang its parent's by this much and still count as nested."""

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Moments:
    """Points in time on threads (-1 is none), in any order."""

    thread: NDArray[np.int32]
    time: Ints


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each span its parent's position or -1, whether it overhangs it, and whether another parent was possible.

    `owner` is for each moment the innermost span around it, or -1.
    """

    parent: Positions
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
) -> Nesting:
    """Nests the spans of each thread (0..threads-1; -1: on none); `rank` is the level's, outermost 0.

    Spans must be in order of start; intervals are half open. Of spans that start together the outer level, then the
    longer one, then the one of smaller `ties`, then the earlier row is outside. A span whose `end` is its
    `start` is nobody's parent. O(n), no Python per span on large inputs.
    """
    order = np.argsort(moments.time, kind="stable")
    on, times = moments.thread[order], moments.time[order]
    visit = _visits(start, end, rank, ties)
    parent, below = nowhere(len(start)), nowhere(len(start))
    owned, top = np.full(len(order), -1, dtype=parent.dtype), np.full(threads, -1, dtype=parent.dtype)
    done = 0
    for first in range(0, max(len(start), 1), _PIECE):
        later = first + _PIECE
        stop = np.searchsorted(times, start[visit[later]]) if later < len(start) else len(times)
        points = slice(done, int(stop))  # those before the first span of the next part
        results = (parent, below, owned[points], top)
        _sweep.into(results, thread, start, end, rank, visit[first:later], on[points], times[points])
        done = int(stop)
        scratch.release()
    owner = np.empty_like(owned)
    owner[order] = owned
    return Nesting(parent, *_doubtful(parent, start, end), owner)


def _visits(start: Ints, end: Ints, rank: NDArray[np.int8], ties: Sequence[NDArray[Any]]) -> Positions:
    """Rows from the outermost in: their own order but where several start together."""
    visit = nowhere(len(start))
    for first in range(0, len(visit), _PIECE):
        visit[first : first + _PIECE] = np.arange(first, min(first + _PIECE, len(visit)))
        scratch.release()
    together = np.flatnonzero(tied(start))
    last = [each[together] for each in reversed(ties)]
    visit[together] = together[np.lexsort((together, *last, -end[together], rank[together], start[together]))]
    return visit


def _doubtful(parent: Positions, start: Ints, end: Ints) -> tuple[Bools, Bools]:
    """Which spans overhang their parent, and which began in a parent that overhangs its own, where that still ran."""
    overhangs, ambiguous = np.zeros(len(parent), dtype=np.bool_), np.zeros(len(parent), dtype=np.bool_)
    for first in range(0, len(parent), _PIECE):
        at = first + np.flatnonzero(parent[first : first + _PIECE] >= 0)
        overhangs[at] = end[at] > end[parent[at]] + SLACK_NS
        scratch.release()
    for first in range(0, len(parent), _PIECE):
        at = first + np.flatnonzero(parent[first : first + _PIECE] >= 0)
        at = at[overhangs[parent[at]]]
        ambiguous[at] = end[parent[parent[at]]] > start[at]
        scratch.release()
    return overhangs, ambiguous


@dual
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
    owner: Ints,
    top: Ints,
) -> None:
    """A stack of open spans a thread: a closed one below an open one is passed over, not yet dropped."""
    m = 0
    for v in range(len(visit) + 1):
        i = visit[v] if v < len(visit) else -1
        while m < len(moment_time) and (i < 0 or moment_time[m] < start[i]):
            if moment_thread[m] >= 0:
                j = top[moment_thread[m]]
                while j >= 0 and end[j] <= moment_time[m]:
                    j = below[j]
                owner[m] = j
            m += 1
        if i < 0 or thread[i] < 0:
            continue
        j = top[thread[i]]
        while j >= 0 and end[j] <= start[i]:
            j = below[j]
        below[i] = j
        top[thread[i]] = i
        while j >= 0 and (end[j] <= start[i] or rank[j] > rank[i]):
            j = below[j]
        parent[i] = j
