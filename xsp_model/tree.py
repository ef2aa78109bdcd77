"""Walks up the span tree, vectorised over all spans at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.arrays import Bools, Ints

__all__ = ["ancestors", "innermost", "outermost"]


def ancestors(parent: Ints) -> Iterator[Ints]:
    """For each span its parent, then its grandparent, ... (-1: none), until nobody has one.

    `parent[i]` is the row of span i's parent or -1. Raises ValueError on a cycle.
    """
    current = parent
    for _ in range(len(parent) + 1):
        if not (current >= 0).any():
            return
        yield current
        current = np.where(current >= 0, parent[current], -1)
    message = "the span tree has a cycle"
    raise ValueError(message)


def innermost(parent: Ints, wanted: Bools) -> Ints:
    """For each span the nearest wanted span among itself and its ancestors, or -1."""
    found = np.where(wanted, np.arange(len(parent)), -1)
    for up in ancestors(parent):
        found = np.where((found < 0) & (up >= 0) & wanted[up], up, found)
    return found


def outermost(parent: Ints, wanted: Bools) -> Ints:
    """For each span the farthest wanted span among itself and its ancestors, or -1."""
    found = np.where(wanted, np.arange(len(parent)), -1)
    for up in ancestors(parent):
        found = np.where((up >= 0) & wanted[up], up, found)
    return found
