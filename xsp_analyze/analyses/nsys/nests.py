"""Which ranges of a thread hold which stretches, and the nest of ranges as nsys tells it; no join over all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model.columns.tree import MAX_DEPTH, depths, innermost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["Nest", "containing", "lanes", "nest_of_ranges", "plain_nest", "tightest"]


def lanes(start: Ints, end: Ints) -> list[Ints]:
    """The intervals of one thread dealt out to as few lanes as can be, those of a lane not overlapping.

    Each lane is the positions of its intervals in order of start; there are as many as intervals were ever open at
    once. Takes n log n, however the intervals nest or overlap.
    """
    order = np.lexsort((-end, start))
    begun = start[order]
    over = np.maximum(end[order], begun + 1)  # one that is empty takes up its instant
    by_end = np.argsort(over, kind="stable")
    ended = np.searchsorted(over[by_end], begun, side="right")
    number = np.arange(len(order))
    # Lanes wait in a queue in the order in which they fell free, and an interval takes the first, if there is one.
    # `taken`, how many were taken before each, is min(taken + 1, ended) from one to the next: a running minimum.
    taken = number + np.minimum.accumulate(np.concatenate(([0], ended - number - 1)))[:-1]
    before = np.where(taken < ended, by_end[np.minimum(taken, max(len(order) - 1, 0))], number)
    first = _first(before)
    together = np.argsort(first, kind="stable")
    cuts = np.flatnonzero(np.diff(first[together])) + 1
    return np.split(order[together], cuts)


def _first(before: Ints) -> Ints:
    """The head of each one's chain, by following twice as many links each time."""
    while True:
        further = before[before]
        if np.array_equal(further, before):
            return before
        before = further


def containing(start: Ints, end: Ints, inner_start: Ints, inner_end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Positions of inner stretches with positions of the intervals that hold all of them, lane by lane.

    Every pair comes exactly once; bounds are inclusive.
    """
    for lane in lanes(start, end) if len(start) else ():
        index = np.searchsorted(start[lane], inner_start, side="right") - 1
        outer = lane[np.maximum(index, 0)]
        inside = np.flatnonzero((index >= 0) & (end[outer] >= inner_end))
        yield inside, outer[inside]
        # An empty stretch where one interval ends and the next starts is in both.
        outer = lane[np.maximum(index - 1, 0)]
        inside = np.flatnonzero((index >= 1) & (end[outer] == inner_start) & (inner_start == inner_end))
        yield inside, outer[inside]


def tightest(start: Ints, end: Ints) -> Ints:
    """For each interval the shortest other one that contains it, the first of several; -1: none does.

    Two equal intervals contain each other, so each is the other's.
    """
    best = np.full(len(start), -1, dtype=np.int64)
    for inner, outer in containing(start, end, start, end):
        other = inner != outer
        i, o = inner[other], outer[other]
        so_far = best[i]
        length, shortest = end[o] - start[o], end[so_far] - start[so_far]
        better = (so_far < 0) | (length < shortest) | ((length == shortest) & (o < so_far))
        best[i[better]] = o[better]
    return best


def plain_nest(start: Ints, end: Ints) -> tuple[Ints, Ints] | None:
    """For each interval the tightest other one that contains it (-1: none) and how many do; None where that is not so.

    Plain nests alone: none is empty, no two are equal, and those that share time contain one another.
    """
    if (end <= start).any():
        return None
    order = np.argsort(start, kind="stable")
    if (start[order][1:] == start[order][:-1]).any():
        order = np.lexsort((-end, start))
    begun, over = start[order], end[order]
    depth = np.arange(len(order)) - np.searchsorted(np.sort(over), begun, side="right")  # those still open
    above = _one_up(depth)
    inner = np.flatnonzero(depth > 0)
    outer = above[inner]
    held = (over[inner] <= over[outer]) & ~((over[inner] == over[outer]) & (begun[inner] == begun[outer]))
    if (outer < 0).any() or not held.all():
        return None
    parent, depths = np.full(len(order), -1, dtype=np.int64), np.empty(len(order), dtype=np.int64)
    parent[order[inner]], depths[order] = order[outer], depth
    return parent, depths


def _one_up(depth: Ints) -> Ints:
    """For each place the last one before it that is one less deep, or -1."""
    deepest = int(depth.max(initial=0))
    small = depth.astype(np.int16) if deepest < np.iinfo(np.int16).max else depth  # which numpy sorts by counting
    order = np.argsort(small, kind="stable")
    cuts = np.searchsorted(depth[order], np.arange(deepest + 2))
    above = np.full(len(depth), -1, dtype=np.int64)
    for level in range(1, deepest + 1):
        outer, inner = order[cuts[level - 1] : cuts[level]], order[cuts[level] : cuts[level + 1]]
        at = np.searchsorted(outer, inner) - 1
        above[inner] = np.where(at >= 0, outer[np.maximum(at, 0)], -1) if len(outer) else -1
    return above


@dataclass(frozen=True, slots=True)
class Nest:
    """For each range the row of its parent (-1: none), its depth, and whether that is known.

    A range's parent is the shortest that contains it. Equal ranges contain each other and so have no root: their depth
    is unknown, and that of all inside them, and nsys prints them like that.
    """

    parent: Ints
    depth: Ints
    rooted: Bools

    def stacks(self, ids: pl.Series) -> pl.Series:
        """The way down to each, `:2:3:5`, by ids from the outermost to its own.

        Null where it has no root, and for one in MAX_DEPTH others: all ways grow with the square of the depth.
        """
        stacks = _stacks(ids, np.where(_twins(self.parent), -1, self.parent), self.depth)
        return stacks.to_frame().select(pl.when(pl.Series(self.rooted)).then("stack")).to_series()


def nest_of_ranges(start: Ints, end: Ints, ids: Ints) -> Nest:
    """The nest of ranges with these bounds; of several that are as short, the one of the least id is the parent."""
    plain = plain_nest(start, end)
    if plain is not None:
        return Nest(*plain, np.ones(len(start), dtype=np.bool_))
    order = np.argsort(ids, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    tightest_of = tightest(start[order], end[order])
    parent = np.where(tightest_of >= 0, order[tightest_of], -1)[rank]
    twin = _twins(parent)
    below_roots = np.where(twin, -1, parent)
    return Nest(parent, depths(below_roots), innermost(below_roots, twin) < 0)


def _twins(parent: Ints) -> Bools:
    """The ranges that are their parent's parent, which two equal ones are of each other."""
    grand = np.where(parent >= 0, parent[parent], -1)
    return np.equal(grand, np.arange(len(parent)))


def _stacks(ids: pl.Series, parent: Ints, depth: Ints) -> pl.Series:
    own = (":" + ids.cast(pl.String)).alias("stack")
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(min(int(depth.max(initial=0)) + 1, MAX_DEPTH) + 1))
    position = np.argsort(order, kind="stable")
    levels: list[pl.Series] = []
    for level, (first, end) in enumerate(pairwise(edges.tolist())):
        here = order[first:end]
        outer = levels[-1].gather(position[parent[here]] - edges[level - 1]) if level else ""
        levels.append(outer + own.gather(here))
    levels.append(own.clear(len(order) - int(edges[-1])))
    return pl.concat(levels).gather(position).alias("stack")
