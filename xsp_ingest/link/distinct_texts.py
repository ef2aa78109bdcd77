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

__all__ = ["as_categorical", "category_indices", "matches"]


def matches(column: pl.Series, pattern: str) -> Bools:
    """For each row of a Categorical column whether the regex is found in its text; null: no."""
    mask: Bools = _answer_by_text(column, lambda texts: texts.str.contains(pattern), np.bool_, fill=False)
    return mask


def category_indices(column: pl.Series, categories: Sequence[str]) -> NDArray[np.int8]:
    """For each row of a Categorical column the index of its text among the categories; null or another text: -1."""
    index_of = {category: index for index, category in enumerate(categories)}
    indices: NDArray[np.int8] = _answer_by_text(
        column, lambda texts: [index_of.get(t, -1) for t in texts], np.int8, fill=-1
    )
    return indices


def _answer_by_text(column: pl.Series, answer: Callable[[pl.Series], Any], kind: Any, *, fill: int) -> Any:  # noqa: ANN401
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


def as_categorical(indices: NDArray[np.int8], categories: Sequence[str]) -> pl.Series:
    """The Categorical column in which each row has the category of its index; -1: null."""
    values = pl.Series([*categories, None], dtype=pl.Categorical)
    return values.gather(np.where(indices < 0, len(categories), indices).astype(np.uint8))
