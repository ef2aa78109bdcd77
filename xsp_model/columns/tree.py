"""Walks up the span tree, vectorised over all spans at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["MAX_DEPTH", "ancestors", "depths", "innermost", "is_cyclic", "jumps", "outermost"]

MAX_DEPTH = 512
"""Spans in one another, the outermost among them, that texts of them all are made of: all together grow with both."""

_CYCLE = "the span tree has a cycle"


def ancestors(parent: Positions) -> Iterator[Positions]:
    """For each span its parent, then its grandparent, ... (-1: none), until nobody has one.

    `parent[i]` is the row of span i's parent or -1. Raises ValueError on a cycle.
    """
    current = parent
    for _ in range(len(parent) + 1):
        if not (current >= 0).any():
            return
        yield current
        current = np.where(current >= 0, parent[current], -1)
    raise ValueError(_CYCLE)


def depths(parent: Positions) -> Ints:
    """How many spans are above each. Raises ValueError on a cycle."""
    depth = (parent >= 0).astype(np.int64)
    for rows, up in jumps(parent):
        depth[rows] += depth[up]
    return depth


def innermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the nearest wanted span among itself and its ancestors, or -1."""
    nearest = np.where(mask, np.arange(len(parent)), -1)
    for rows, up in jumps(np.where(mask, -1, parent)):
        nearest[rows] = nearest[up]
    return nearest


def outermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the farthest wanted span among itself and its ancestors, or -1."""
    farthest = np.where(mask, np.arange(len(parent)), -1)
    for rows, up in jumps(parent):
        above = farthest[up]
        farthest[rows] = np.where(above >= 0, above, farthest[rows])
    return farthest


def jumps(parent: Positions) -> Iterator[tuple[Positions, Positions]]:
    """Rows, and for each the span 1, 2, 4, 8, ... above it, until none has one: what is known of so many is doubled.

    So the deepest of trees takes as many rounds as its depth has binary digits. Raises ValueError on a cycle.
    """
    jump = parent
    for _ in range(len(parent).bit_length() + 1):
        rows = np.flatnonzero(jump >= 0)
        if not len(rows):
            return
        up = jump[rows]
        yield rows, up
        jump = jump.copy()
        jump[rows] = jump[up]
    raise ValueError(_CYCLE)


def is_cyclic(parent: Positions) -> bool:
    """Whether some span is its own ancestor."""
    up = parent
    for _ in range(len(parent).bit_length() + 1):
        if not (up >= 0).any():
            return False
        up = np.where(up >= 0, up[up], -1)
    return True
