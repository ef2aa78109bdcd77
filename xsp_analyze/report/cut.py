"""Tables cut to what a page can hold: the rows with most, in their order, and a sentence on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Role
from xsp_analyze.render.shown import heading
from xsp_analyze.render.units import share

if TYPE_CHECKING:
    from xsp_analyze.core import Column, Result

__all__ = ["MOST_ROWS", "cut"]

MOST_ROWS = 1_000


def cut(result: Result, by: str | None = None, most: int = MOST_ROWS) -> tuple[Result, str | None]:
    """The `most` rows that hold most of `by` (else of the first time, else of the first measure), in their order.

    The sentence says how many there are and which part of the column the kept ones hold; None where all are kept.
    """
    height = result.table.height
    if height <= most:
        return result, None
    rank = next((c for c in result.columns if c.name == by), None) or _weightiest(result)
    if rank is None:
        return _kept(result, result.table.head(most)), f"The first {most:,} of {height:,} rows. {_where(result)}"
    order = pl.col(rank.name).rank("ordinal", descending=True).fill_null(height + 1)
    table = result.table.filter(order <= most).head(most)
    whole, held = float(result.table[rank.name].sum() or 0), float(table[rank.name].sum() or 0)
    part = f", {share(held / whole)} of all {heading(rank)}" if whole else ""
    return _kept(result, table), f"The {most:,} rows of {height:,} with most {heading(rank)}{part}. {_where(result)}"


def _kept(result: Result, table: pl.DataFrame) -> Result:
    return replace(result, table=table)


def _where(result: Result) -> str:
    return f"xsp analyze INPUT -a {result.analysis.id} -f csv writes them all."


def _weightiest(result: Result) -> Column | None:
    measures = [c for c in result.columns if c.role is Role.MEASURE and result.table[c.name].dtype.is_numeric()]
    times = [c for c in measures if c.unit == "ns"]
    return next(iter([*times, *measures]), None)
