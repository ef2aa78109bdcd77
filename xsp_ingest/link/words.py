"""Looks for words in a dictionary-encoded column: in its few distinct texts, not in its many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from xsp_model.arrays import Bools

__all__ = ["matches"]


def matches(column: pl.Series, pattern: str) -> Bools:
    """For each row of a Categorical column whether the regex is found in its text; null: no."""
    texts = column.unique().cast(pl.String)
    found = texts.filter(texts.str.contains(pattern).fill_null(value=False))
    if found.is_empty():
        return np.zeros(len(column), dtype=np.bool_)
    return column.is_in(found.cast(pl.Categorical).implode()).fill_null(value=False).to_numpy(writable=True)
