"""Texts in CSV as a spreadsheet may open them: no name out of a trace is run there as a formula."""

from __future__ import annotations

import polars as pl

__all__ = ["guard_texts", "write_csv"]

_SKIPPED = r"\s\x00\u{a0}\u{200b}-\u{200f}\u{2060}\u{feff}"  # what some spreadsheets take for nothing
_ACTS = rf"^(?:[\t\r\n]|[{_SKIPPED}]*[=+\-@＝＋－＠])"  # noqa: RUF001 (of full width: some take these as well)
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*%?$"
"""OWASP, "CSV injection": how formulas begin; a number that begins so is none."""

_ACTS_WITHIN = rf"([;\t\r\n][{_SKIPPED}\"]*)([=+\-@＝＋－＠])"  # noqa: RUF001
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
