"""Names for the numpy arrays that hot paths pass around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from xsp_model.columns import scratch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bools", "Floats", "Ints", "Positions", "lookup", "no_refs", "nullable_index", "true_indices"]

Ints = NDArray[np.int64]
Positions = NDArray[np.signedinteger[Any]]
"""Positions of spans, -1 for none: of half the size where there are less than 2^31."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MAX_INT32 = (1 << 31) - 1
_SMALL = 1 << 16  # a table of this many entries costs next to nothing


def no_refs(count: int) -> Positions:
    """A place for each of so many spans, none of them known yet."""
    return scratch.full(count, -1, np.int32 if count <= _MAX_INT32 else np.int64)


def true_indices(mask: Bools) -> Positions:
    """Where the mask is set, in order."""
    out = no_refs(int(np.count_nonzero(mask)))
    done = 0
    for piece in scratch.pieces(len(mask)):
        indices = np.flatnonzero(mask[piece])
        out[done : done + len(indices)] = indices + piece.start
        done += len(indices)
    return out


def nullable_index(at: Positions) -> pl.Series:
    """Positions to gather rows by: null for -1, which gathers null."""
    column = pl.Series(at)
    return column if bool((at >= 0).all()) else column.set(column < 0, None)


def lookup(keys: Ints, sought: Ints) -> Ints:
    """For each wanted key its first place in `keys`, or -1: by a table where they are dense, else sorted.

    A wanted -1 may stand for none: it is looked up like any other key.
    """
    if not len(keys) or not len(sought):
        return scratch.full(len(sought), -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    dense = high - low < 4 * len(keys) + _SMALL
    find = _by_table(keys, low, high) if dense else _by_order(keys)
    out: Ints = scratch.empty(len(sought), np.int64)
    for piece in scratch.pieces(len(sought)):
        out[piece] = find(sought[piece])
    return out


def _by_table(keys: Ints, low: int, high: int) -> Callable[[Ints], Ints]:
    table = scratch.full(high - low + 1, -1, np.int32 if len(keys) <= _MAX_INT32 else np.int64)
    for piece in reversed(list(scratch.pieces(len(keys)))):
        table[keys[piece][::-1] - low] = np.arange(piece.stop - 1, piece.start - 1, -1)  # of equal keys the first stays

    def find(some: Ints) -> Ints:
        inside = (some >= low) & (some <= high)
        return np.where(inside, table.take(some - low, mode="clip"), -1)  # beyond all bounds differences come around

    return find


def _by_order(keys: Ints) -> Callable[[Ints], Ints]:
    order = np.argsort(keys, kind="stable")

    def find(some: Ints) -> Ints:
        at = np.searchsorted(keys, some, sorter=order)  # of equal keys the first
        nearest = order[np.minimum(at, len(keys) - 1)]
        return np.where(keys[nearest] == some, nearest, -1)

    return find
