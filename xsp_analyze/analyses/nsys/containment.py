"""Which ranges contain which stretches of the same thread, without a join over all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.arrays import Ints

__all__ = ["containing", "lanes", "tightest"]


def lanes(start: Ints, end: Ints) -> Iterator[Ints]:
    """The intervals [start, end] of one thread, dealt out so that those of a lane neither overlap nor touch.

    Yields, for each lane, the positions of its intervals in order of start. For ranges that nest as brackets do a
    lane is a depth, so there are as many lanes as the nest is deep.
    """
    left = np.lexsort((-end, start))
    while len(left):
        open_before = np.arange(len(left)) - np.searchsorted(np.sort(end[left]), start[left], side="left")
        late: list[Ints] = []
        for depth in range(int(open_before.max()) + 1):
            lane = left[open_before == depth]
            # Where ranges overlap without nesting, the count of open ones may put two into one lane.
            reach = np.maximum.accumulate(end[lane])
            clash = np.concatenate(([False], start[lane[1:]] <= reach[:-1])) if len(lane) else np.empty(0, dtype=bool)
            late.append(lane[clash])
            yield lane[~clash]
        left = np.sort(np.concatenate(late))
        left = left[np.lexsort((-end[left], start[left]))]


def containing(start: Ints, end: Ints, inner_start: Ints, inner_end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Positions of inner stretches with positions of the intervals that hold all of them, lane by lane.

    Every pair comes exactly once; bounds are inclusive.
    """
    for lane in lanes(start, end):
        if not len(lane):
            continue
        place = np.searchsorted(start[lane], inner_start, side="right") - 1
        outer = lane[np.maximum(place, 0)]
        inside = np.flatnonzero((place >= 0) & (end[outer] >= inner_end))
        yield inside, outer[inside]


def tightest(start: Ints, end: Ints) -> Ints:
    """For each interval the shortest other one that contains it, the first of several; -1: none does.

    Two equal intervals contain each other, so each is the other's.
    """
    best = np.full(len(start), -1, dtype=np.int64)
    for inner, outer in containing(start, end, start, end):
        other = inner != outer
        i, o = inner[other], outer[other]
        known = best[i]
        length, shortest = end[o] - start[o], end[known] - start[known]
        better = (known < 0) | (length < shortest) | ((length == shortest) & (o < known))
        best[i[better]] = o[better]
    return best
