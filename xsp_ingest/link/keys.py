"""One whole number for a pair of them, so that tables are joined by looking a number up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_model import scratch

if TYPE_CHECKING:
    import polars as pl

    from xsp_model.arrays import Ints

__all__ = ["pair_keys"]

_MOST = 1 << 62


def pair_keys(have: pl.DataFrame, want: pl.DataFrame) -> tuple[Ints, Ints]:
    """For each row of two frames with the same two columns a number, alike exactly where both columns are.

    The first column should have few values. Rows with a null are like none: in `want` they are -1, in `have` -2.
    """
    name, other = have.columns
    known = np.sort(have[name].drop_nulls().unique().to_numpy())
    seconds = have[other].drop_nulls()
    low, high = (int(seconds.min() or 0), int(seconds.max() or 0))  # type: ignore[arg-type]
    if (high - low + 1) * max(len(known), 1) > _MOST:  # numbers all over the place: their ranks will do
        distinct = np.sort(seconds.unique().to_numpy())
        return tuple(_numbers(f, known, distinct, 0, len(distinct), n) for f, n in ((have, -2), (want, -1)))  # type: ignore[return-value]
    return _numbers(have, known, None, low, high + 1 - low, -2), _numbers(want, known, None, low, high + 1 - low, -1)


def _numbers(rows: pl.DataFrame, known: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    out: Ints = scratch.empty(rows.height, np.int64)
    for piece in scratch.pieces(rows.height):
        out[piece] = _some_numbers(rows[piece], known, distinct, low, width, none)
    return out


def _some_numbers(rows: pl.DataFrame, known: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    first, second = (rows[column] for column in rows.columns)
    a, b = first.fill_null(0).to_numpy(), second.fill_null(0).to_numpy()
    place, is_known = _looked_up(known, a)
    if distinct is None:
        is_known &= (b >= low) & (b < low + width)
    else:
        b, also = _looked_up(distinct, b)
        is_known &= also
    for each in (first, second):
        if each.null_count():
            is_known &= each.is_not_null().to_numpy()
    return np.where(is_known, place * width + (b - low), none)


def _looked_up(known: Ints, wanted: Ints) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    if len(known) == 1:
        return np.zeros(len(wanted), dtype=np.int64), wanted == known[0]
    if not len(known):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=np.bool_)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return place, known[place] == wanted
