"""Backward operators are of the lines that their forward twins were called from: the engine is called by one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_model.arrays import lookup

if TYPE_CHECKING:
    from xsp_ingest.link.forest import Forest

__all__ = ["with_forward_lines"]


def with_forward_lines(forest: Forest) -> pl.DataFrame:
    """The operators; those in a backward one, and it, have the lines of its forward twin.

    What Python called within a backward operator, as to compute something anew, has other lines than that: it keeps its
    own.
    """
    operators, has_twin = forest.operators, forest.twin >= 0
    lines = operators["source_lines"]
    if lines.null_count() == len(lines) or not has_twin.any():
        return operators
    at = operators["at"].to_numpy()
    holder = innermost(forest.parent, has_twin)[at]
    inside = np.flatnonzero(holder >= 0)
    of_holder, of_twin = lookup(at, holder[inside]), lookup(at, forest.twin[holder[inside]])
    texts = lines.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    recorded = (of_holder >= 0) & (of_twin >= 0)  # -1 reads the last, which does not matter then
    moved = recorded & (texts[inside] == texts[of_holder]) & (texts[of_twin] >= 0)
    source = np.arange(len(at))
    source[inside[moved]] = of_twin[moved]
    return operators.with_columns(lines.gather(source))
