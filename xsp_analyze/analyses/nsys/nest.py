"""The nest of one thread's ranges: parent, depth and the way down to each, as nsys tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.containment import nest_of, tightest
from xsp_model.tree import ancestors

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
        """The way down to each, `:2:3:5`, by ids from the outermost to its own; null where it has no root."""
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
    rootless, depth = twin.copy(), np.zeros(len(parent), dtype=np.int64)
    for above in ancestors(np.where(twin, -1, parent)):
        rootless |= (above >= 0) & twin[above]
        depth += above >= 0
    return Nest(parent, depth, ~rootless)


def _twins(parent: Ints) -> Bools:
    """The ranges that are their parent's parent, which two equal ones are of each other."""
    grand = np.where(parent >= 0, parent[parent], -1)
    return np.equal(grand, np.arange(len(parent)))


def _stacks(ids: pl.Series, parent: Ints, depth: Ints) -> pl.Series:
    own = (":" + ids.cast(pl.String)).alias("stack")
    stacks = own
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        stacks = stacks.scatter(here, stacks.gather(parent[here]) + own.gather(here))
    return stacks
