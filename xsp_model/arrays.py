"""Names for the numpy arrays that hot paths pass around."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xsp_model import scratch

__all__ = ["Bools", "Floats", "Ints", "Positions", "nowhere", "places"]

Ints = NDArray[np.int64]
Positions = NDArray[np.signedinteger[Any]]
"""Positions of spans, -1 for none: of half the size where there are less than 2^31."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MOST_INT32 = (1 << 31) - 1
_SMALL = 1 << 16  # a table of this many entries costs next to nothing


def nowhere(count: int) -> Positions:
    """A place for each of so many spans, none of them known yet."""
    return scratch.full(count, -1, np.int32 if count <= _MOST_INT32 else np.int64)


def places(keys: Ints, wanted: Ints) -> Ints:
    """For each wanted key its first place in `keys`, or -1: by a table where they are dense, else sorted.

    A wanted -1 may stand for none: it is looked up like any other key.
    """
    out = scratch.full(len(wanted), -1, np.int64)
    if not len(keys) or not len(wanted):
        return out
    low, high = int(keys.min()), int(keys.max())
    inside = np.flatnonzero((wanted >= low) & (wanted <= high))
    if high - low < 4 * len(keys) + _SMALL:
        table = scratch.full(high - low + 1, -1, np.int32 if len(keys) < _MOST_INT32 else np.int64)
        table[keys[::-1] - low] = np.arange(len(keys) - 1, -1, -1)  # of equal keys the first stays
        out[inside] = table[wanted[inside] - low]
        return out
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys, wanted[inside], sorter=order)  # of equal keys the first
    found = order[np.minimum(at, len(keys) - 1)]
    out[inside] = np.where(keys[found] == wanted[inside], found, -1)
    return out
