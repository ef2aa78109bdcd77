"""Unions and overlaps of time intervals, vectorised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_model.columns.arrays import distinct_values

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Ints

__all__ = [
    "FARTHEST_NS",
    "LATEST_NS",
    "MAX_TOTAL_NS",
    "Lanes",
    "coverage_before",
    "gaps",
    "intersection",
    "merge",
    "union_length",
]

LATEST_NS = 1 << 61
"""73 years: readers take no time as far as this from their clock's 0. Sums and differences of such fit in 64 bits."""

FARTHEST_NS = 2 * LATEST_NS - 1
"""146 years: how far from a trace's start anything in it may be, so that differences of any two times fit too."""

MAX_TOTAL_NS = 0.99 * (1 << 63)
"""292 years: what a trace's durations may add up to."""


def merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union of the intervals [start, end) as disjoint, sorted intervals; empty ones vanish, touching ones join."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]


def union_length(start: Ints, end: Ints) -> int:
    """Time covered by at least one of the intervals."""
    first, last = merge(start, end)
    return int((last - first).sum())


def intersection(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Where two unions overlap; both must be disjoint and sorted, as `merge` returns them."""
    if not len(a[0]) or not len(b[0]):
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    edges = np.concatenate((a[0], a[1], b[0], b[1]))
    change = np.concatenate((np.ones_like(a[0]), -np.ones_like(a[1]), np.ones_like(b[0]), -np.ones_like(b[1])))
    order = np.lexsort((change, edges))
    edges, depth = edges[order], np.cumsum(change[order])
    both = np.flatnonzero(depth == 2)  # noqa: PLR2004 (inside one of each)
    return merge(edges[both], edges[both + 1])


def gaps(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The holes of a union between its first start and last end, as disjoint, sorted intervals.

    Empty intervals count as points of it: a hole around one is two, and one beyond the others bounds the last hole.
    """
    keep = end >= start
    start, end = start[keep], end[keep]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    hole = start[1:] > reach[:-1]
    return reach[:-1][hole], start[1:][hole]


def coverage_before(union: tuple[Ints, Ints], time: Ints) -> Ints:
    """How much of a union, disjoint and sorted as `merge` returns it, lies before each time."""
    start, end = union
    if not len(start):
        return np.zeros(len(time), dtype=np.int64)
    total = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, time, side="right")
    last = np.maximum(index - 1, 0)
    inside = np.where(index > 0, np.minimum(time, end[last]) - start[last], 0)
    return np.asarray(total[last] + inside, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Many lines of time as one line of whole numbers, one behind the other: what is done to one is done to all.

    A number tells of a lane and which of the distinct times it is, so that none is too large. Numbers order as times of
    a lane do, and intervals of two lanes never meet; how long one is only the times tell.
    """

    times: Ints

    @classmethod
    def of(cls, *times: Ints) -> Lanes:
        """Lanes on which these times have a position."""
        return cls(distinct_values(np.concatenate(times)))

    def at(self, lane: Ints, time: Ints) -> Ints:
        """The position of each time of a lane (from 0)."""
        return np.asarray(lane * len(self.times) + np.searchsorted(self.times, time), dtype=np.int64)

    def lane(self, position: Ints) -> Ints:
        """Whose each position is."""
        return np.asarray(position // max(len(self.times), 1), dtype=np.int64)

    def time(self, position: Ints) -> Ints:
        """What time each position is."""
        return np.asarray(self.times[position % max(len(self.times), 1)], dtype=np.int64)

    def coverage_before(self, union: tuple[Ints, Ints], position: Ints) -> Ints:
        """How much time of a union lies before each position; of its own lane and of all lanes before that."""
        start, end = union
        if not len(start):
            return np.zeros(len(position), dtype=np.int64)
        total = np.concatenate(([0], np.cumsum(self.time(end) - self.time(start))))
        index = np.searchsorted(start, position, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.where(index > 0, self.time(np.minimum(position, end[last])) - self.time(start[last]), 0)
        return np.asarray(total[last] + inside, dtype=np.int64)
