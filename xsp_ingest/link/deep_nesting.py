"""Spans nested deeper than any program nests: the chain of parents is cut, so that no path grows with the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model.tree import MAX_DEPTH, depths, innermost, jumps

if TYPE_CHECKING:
    from xsp_model.arrays import Positions

__all__ = ["with_limited_depth"]

_BLOCK = MAX_DEPTH // 2  # Python by itself stops at about 330 modules, each of three calls, in one another


def with_limited_depth(parent: Positions) -> tuple[Positions, int]:
    """The parents, so that fewer than MAX_DEPTH spans are above each, and how many spans were deeper.

    The outer half of the levels is as it was. Of what is below, every so many levels together hang under the last of
    that half: nearly all spans keep their own parent, on which rest the names and the layers of device work.
    """
    if not _is_deep(parent):
        return parent, 0
    depth = depths(parent)
    heads = (depth >= MAX_DEPTH) & (depth % _BLOCK == 0)
    limited = parent.copy()
    limited[heads] = innermost(parent, depth == _BLOCK - 1)[heads]
    return limited, int((depth >= MAX_DEPTH).sum())


def _is_deep(parent: Positions) -> bool:
    """Whether any span has so many above it; in most traces a few rounds see that none has."""
    return any(2**doubled >= MAX_DEPTH for doubled, _ in enumerate(jumps(parent)))
