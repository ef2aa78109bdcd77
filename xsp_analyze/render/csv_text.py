"""Results as CSV: for programs under our own column names, or as the tool prints it whose report it is."""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.render.json_text import plain

if TYPE_CHECKING:
    from xsp_analyze.core import Column, Result

__all__ = ["flat", "guard_texts", "render", "write_csv"]

# Texts in CSV as a spreadsheet may open them: no name out of a trace is run there as a formula.

_UNSEEN = r"\p{Z}\p{C}\p{Default_Ignorable_Code_Point}\u{2800}"
"""What some spreadsheets take for nothing: separators, controls and formats, fillers, the empty Braille pattern."""
_SIGNS = r"=+\-@＝＋－＠﹦﹢﹣﹫"  # noqa: RUF001 (of full and small width: some take these as well)
_ENDS = r"\t-\r\x1c-\x1e\x{85}\u{2028}\u{2029}"
"""Tabs and whatever ends a line for somebody."""
_ACTS = rf"^(?:[{_ENDS}]|[{_UNSEEN}]*[{_SIGNS}])"
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*%?$"
"""OWASP, "CSV injection": how formulas begin; a number that begins so is none."""
_ACTS_WITHIN = rf"([;{_ENDS}][{_UNSEEN}\"]*)([{_SIGNS}])"
"""How one begins where a spreadsheet splits at semicolons or tabs, for which our quotation marks are no protection."""


def guard_texts(texts: pl.Series) -> pl.Series:
    """The texts, with an apostrophe before whatever a spreadsheet would run in them; other values as they are."""
    if texts.dtype != pl.String:
        return texts
    acts = texts.str.contains(_ACTS) & ~texts.str.contains(_NUMBER)
    if texts.str.contains(_ACTS_WITHIN).any():
        texts = texts.str.replace_all(_ACTS_WITHIN, "$1'$2")
    if not acts.any():
        return texts
    return pl.select(pl.when(acts).then("'" + texts).otherwise(texts).alias(texts.name)).to_series()


def write_csv(columns: list[pl.Series], *, raw: bool, header: bool = True) -> str:
    """CSV of the columns; `raw`: texts as they are."""
    frame = pl.DataFrame(columns if raw else [guard_texts(column) for column in columns])
    if header and not raw and frame.width:
        frame.columns = guard_texts(pl.Series(frame.columns, dtype=pl.String)).to_list()
    return frame.write_csv(include_header=header)


_OTHER_UNITS = {"byte": ("(MB", 1e-6), "byte/s": ("(MB", 1e-6), "share": ("", 100.0), "1": ("(%)", 100.0)}
"""Where another tool's heading names a unit that is not ours: what it holds, and the factor to it.

Shares are percentages there whatever the heading says: the recipes' maps head them `Kernel`.
"""
_ROUNDED = Context(prec=400, rounding=ROUND_HALF_UP)  # whatever context the caller has


def render(result: Result, *, raw: bool = False) -> str:
    """Full precision and empty cells for null; reports of other tools with their headings and rounding.

    Texts that a spreadsheet would run get an apostrophe before them, unless `raw`.
    """
    if any(c.header is not None for c in result.columns):
        return write_csv([_print_values(c, result.table[c.name]) for c in result.columns], raw=raw)
    return write_csv([flat(result.table[c.name]) for c in result.columns], raw=raw)


def flat(values: pl.Series) -> pl.Series:
    """Cells that CSV can hold: lists as JSON, no infinities."""
    if values.dtype.is_nested():
        texts = [None if v is None else json.dumps(plain(v)) for v in values.to_list()]
        return pl.Series(values.name, texts, dtype=pl.String)
    if values.dtype.is_float():
        return values.set(~values.is_finite(), None)
    return values.cast(pl.String) if isinstance(values.dtype, pl.Categorical | pl.Enum) else values


def _print_values(column: Column, values: pl.Series) -> pl.Series:
    header = column.header or column.name
    contained, factor = _OTHER_UNITS.get(column.unit, ("", 1.0))
    if contained in header and factor != 1.0:
        values = values * factor
    if column.decimals is not None:
        texts = [
            None if v is None or not math.isfinite(v) else _round_as_sqlite(v, column.decimals)
            for v in values.to_list()
        ]
        return pl.Series(header, texts, dtype=pl.String)
    if isinstance(values.dtype, pl.String | pl.Categorical):
        return values.cast(pl.String).replace("", None).alias(header)
    return values.alias(header)


def _round_as_sqlite(value: float, decimals: int) -> str:
    """The number as SQLite rounds it, which is how nsys does: a half, as it reads in decimal, goes away from zero.

    Python rounds the binary value instead: 4639.95 is a little less than it reads, and becomes 4639.9.
    """
    return str(Decimal(repr(value)).quantize(Decimal((0, (1,), -decimals)), context=_ROUNDED))
