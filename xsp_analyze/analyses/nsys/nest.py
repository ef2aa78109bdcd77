"""The nest of one thread's ranges: parent, depth and the way down to each, as nsys tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.containment import tightest
from xsp_model.tree import ancestors

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["nested"]


def nested(ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds `parent` (row, null: none), `depth` and `stack` (`:2:3:5`, range ids from the outermost down).

    A range's parent is the shortest that contains it. Equal ranges contain each other and so have no root: depth and
    stack are null for them and for all inside them, and nsys prints them like that.
    """
    parent = tightest(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    twin = _twins(parent)
    rootless, depth, up = twin.copy(), np.zeros(len(parent), dtype=np.int64), np.where(twin, -1, parent)
    for above in ancestors(up):
        rootless |= (above >= 0) & twin[above]
        depth += above >= 0
    stack = _stacks(ranges["range_id"], up, depth)
    rooted = pl.Series("rooted", ~rootless)
    columns = pl.DataFrame({"parent": parent, "depth": depth, "stack": stack}).select(
        pl.when(pl.col("parent") >= 0).then(pl.col("parent")).alias("parent"),
        pl.when(rooted).then(pl.col("depth")).alias("depth"),
        pl.when(rooted).then(pl.col("stack")).alias("stack"),
    )
    return ranges.hstack(columns)


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
