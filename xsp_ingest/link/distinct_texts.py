"""Looks at a dictionary-encoded column by its few distinct texts, not by its many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from xsp_model.arrays import Bools

__all__ = ["codes", "matches", "worded"]


def matches(column: pl.Series, pattern: str) -> Bools:
    """For each row of a Categorical column whether the regex is found in its text; null: no."""
    found: Bools = _looked_up(column, lambda texts: texts.str.contains(pattern), np.bool_, fill=False)
    return found


def codes(column: pl.Series, words: Sequence[str]) -> NDArray[np.int8]:
    """For each row of a Categorical column the place of its text among the words; null or another text: -1."""
    places = {word: place for place, word in enumerate(words)}
    found: NDArray[np.int8] = _looked_up(column, lambda texts: [places.get(t, -1) for t in texts], np.int8, fill=-1)
    return found


def _looked_up(column: pl.Series, answer: Callable[[pl.Series], Any], kind: Any, *, fill: int) -> Any:  # noqa: ANN401
    """The answer for each distinct text, given to all rows that have it; `fill` for null."""
    distinct = column.unique().drop_nulls()
    physical = distinct.to_physical().to_numpy()
    table = np.full(int(physical.max(initial=0)) + 2, fill, dtype=kind)  # its last entry is for null
    table[physical] = np.asarray(answer(distinct.cast(pl.String)), dtype=kind)
    rows, out = column.to_physical(), np.empty(len(column), dtype=kind)
    for piece in scratch.pieces(len(column)):
        some = rows[piece]
        out[piece] = table[(some.fill_null(len(table) - 1) if some.null_count() else some).to_numpy()]
    return out


def worded(places: NDArray[np.int8], words: Sequence[str]) -> pl.Series:
    """The Categorical column in which each row has the word of its place; -1: null."""
    known = pl.Series([*words, None], dtype=pl.Categorical)
    return known.gather(np.where(places < 0, len(words), places).astype(np.uint8))
