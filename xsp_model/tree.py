"""Walks up the span tree, vectorised over all spans at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["ancestors", "depths", "innermost", "outermost"]

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
    depth = np.zeros(len(parent), dtype=np.int64)
    for up in ancestors(parent):
        depth += up >= 0
    return depth


def innermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the nearest wanted span among itself and its ancestors, or -1."""
    nearest = np.where(mask, np.arange(len(parent)), -1)
    waiting = np.flatnonzero(~mask & (parent >= 0))
    up = parent[waiting]
    for _ in range(len(parent) + 1):
        if not len(waiting):
            return nearest
        there = mask[up]
        nearest[waiting[there]] = up[there]
        waiting, up = waiting[~there], parent[up[~there]]
        waiting, up = waiting[up >= 0], up[up >= 0]
    raise ValueError(_CYCLE)


def outermost(parent: Positions, mask: Bools) -> Positions:
    """For each span the farthest wanted span among itself and its ancestors, or -1."""
    farthest = np.where(mask, np.arange(len(parent)), -1)
    for up in ancestors(parent):
        farthest = np.where((up >= 0) & mask[up], up, farthest)
    return farthest
