"""Results as CSV: for programs under our own column names, or as the tool prints it whose report it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_analyze.core import Column, Result

__all__ = ["render"]

_OTHER_UNITS = {"byte": ("(MB", 1e-6), "share": ("(%)", 100.0), "1": ("(%)", 100.0)}
"""Where another tool's heading names a unit that is not ours: what it holds, and the factor to it."""


def render(result: Result) -> str:
    """Full precision and empty cells for null; reports of other tools with their headings and rounding."""
    if any(c.header is not None for c in result.columns):
        return _like_the_other_tool(result)
    plain = result.table.select(_flat(c, result.table[c.name].dtype) for c in result.columns)
    return plain.write_csv()


def _flat(column: Column, dtype: pl.DataType) -> pl.Expr:
    """Cells that CSV can hold: no nested values, no infinities."""
    if dtype.is_nested():
        return pl.col(column.name).map_elements(str, return_dtype=pl.String)
    if dtype.is_float():
        return pl.when(pl.col(column.name).is_finite()).then(pl.col(column.name)).alias(column.name)
    return pl.col(column.name)


def _like_the_other_tool(result: Result) -> str:
    printed = [_printed(c, result.table[c.name]) for c in result.columns]
    return pl.DataFrame(printed).write_csv()


def _printed(column: Column, values: pl.Series) -> pl.Series:
    header = column.header or column.name
    contained, factor = _OTHER_UNITS.get(column.unit, ("", 1.0))
    if contained and contained in header:
        values = values * factor
    if column.decimals is not None:
        texts = [None if v is None else f"{v:.{column.decimals}f}" for v in values.to_list()]
        return pl.Series(header, texts, dtype=pl.String)
    if isinstance(values.dtype, pl.String | pl.Categorical):
        return values.cast(pl.String).replace("", None).alias(header)
    return values.alias(header)
