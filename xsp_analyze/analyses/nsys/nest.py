"""The nest of one thread's ranges: parent, depth and the way down to each, as nsys tells it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.containment import nest_of, tightest
from xsp_model.tree import MAX_DEPTH, depths, innermost

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["Nest", "nested"]


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


def nested(start: Ints, end: Ints, ids: Ints) -> Nest:
    """The nest of ranges with these bounds; of several that are as short, the one of the least id is the parent."""
    plain = nest_of(start, end)
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
