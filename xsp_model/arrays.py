"""Names for the numpy arrays that hot paths pass around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints", "places"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SMALL = 1 << 16  # a table of this many entries costs next to nothing


def places(keys: Ints, wanted: Ints) -> Ints:
    """For each wanted key its place in `keys` (which are unique), or -1: by a table where they are dense, else sorted.

    A wanted -1 may stand for none: it is looked up like any other key.
    """
    out = np.full(len(wanted), -1, dtype=np.int64)
    if not len(keys) or not len(wanted):
        return out
    low, high = int(keys.min()), int(keys.max())
    inside = np.flatnonzero((wanted >= low) & (wanted <= high))
    if high - low < 4 * len(keys) + _SMALL:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[keys - low] = np.arange(len(keys))
        out[inside] = table[wanted[inside] - low]
        return out
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys, wanted[inside], sorter=order)
    found = order[np.minimum(at, len(keys) - 1)]
    out[inside] = np.where(keys[found] == wanted[inside], found, -1)
    return out
