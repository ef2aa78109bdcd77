"""One integer for a pair of them, so that tables are joined by looking a number up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_model import scratch

if TYPE_CHECKING:
    import polars as pl

    from xsp_model.arrays import Ints

__all__ = ["pair_keys"]

_MAX_KEY = 1 << 62


def pair_keys(have: pl.DataFrame, want: pl.DataFrame) -> tuple[Ints, Ints]:
    """For each row of two frames with the same two columns a number, alike exactly where both columns are.

    The first column should have few values. Rows with a null are like none: in `want` they are -1, in `have` -2.
    """
    name, other = have.columns
    firsts = np.sort(have[name].drop_nulls().unique().to_numpy())
    seconds = have[other].drop_nulls()
    low, high = (int(seconds.min() or 0), int(seconds.max() or 0))  # type: ignore[arg-type]
    if (high - low + 1) * max(len(firsts), 1) > _MAX_KEY:  # widely scattered numbers: their ranks will do
        distinct = np.sort(seconds.unique().to_numpy())
        return tuple(_numbers(f, firsts, distinct, 0, len(distinct), n) for f, n in ((have, -2), (want, -1)))  # type: ignore[return-value]
    return _numbers(have, firsts, None, low, high + 1 - low, -2), _numbers(want, firsts, None, low, high + 1 - low, -1)


def _numbers(rows: pl.DataFrame, firsts: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    out: Ints = scratch.empty(rows.height, np.int64)
    for piece in scratch.pieces(rows.height):
        out[piece] = _some_numbers(rows[piece], firsts, distinct, low, width, none)
    return out


def _some_numbers(rows: pl.DataFrame, firsts: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    first, second = (rows[column] for column in rows.columns)
    a, b = first.fill_null(0).to_numpy(), second.fill_null(0).to_numpy()
    index, is_known = _search_sorted(firsts, a)
    if distinct is None:
        is_known &= (b >= low) & (b < low + width)
    else:
        b, also = _search_sorted(distinct, b)
        is_known &= also
    for each in (first, second):
        if each.null_count():
            is_known &= each.is_not_null().to_numpy()
    return np.where(is_known, index * width + (b - low), none)


def _search_sorted(sorted_values: Ints, values: Ints) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    if len(sorted_values) == 1:
        return np.zeros(len(values), dtype=np.int64), values == sorted_values[0]
    if not len(sorted_values):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    index = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return index, sorted_values[index] == values
