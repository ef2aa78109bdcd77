"""Numbers as programs print them under any locale, read by the evidence of the whole file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["UNAVAILABLE", "decimal_sign", "to_floats", "with_evidence"]

UNAVAILABLE = ("n/a", "nan", "-nan", "(!) nan", "(!) n/a", "no data", "inf", "-inf", "<overflow>", "<error>")
"""What tools print where a counter has no value."""

# Blanks (also the no-break ones of French and Nordic locales) and apostrophes (Swiss) only ever group digits.
_GROUPING = r"[\s\u00a0\u202f\u2009'\u2019_]"
_NUMBER = r"^[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?$"


def _decimal(sign: str, other: str) -> str:
    """Matches numbers in which `sign` can only be the decimal one, or `other` only group digits."""
    s, o = rf"\{sign}", rf"\{other}"
    tail = r"(?:[eE][+-]?\d+)?$"
    patterns = (
        rf"^[+-]?[\d{o}]*{s}(?:\d{{1,2}}|\d{{4,}}|){tail}",  # 12.5: groups have three digits
        rf"^[+-]?(?:\d{{4,}}|0\d*){s}\d+{tail}",  # 1234.567, 0.125: no group begins so
        rf"{o}\d{{3}}{s}\d+",  # 1,234.567
        rf"^[+-]?\d{{1,3}}(?:{o}\d{{3}}){{2,}}",  # 1,234,567: nothing has two decimal signs
        rf"^[+-]?\d+{s}\d+[eE]",  # 1.234e+09
    )
    return "|".join(patterns)


def _numbers(texts: pl.Series) -> pl.Series:
    """The texts that are numbers in some locale, without blanks and apostrophes."""
    bare = texts.drop_nulls().str.replace_all(_GROUPING, "")
    return bare.filter(bare.str.contains(_NUMBER))


def with_evidence(texts: pl.Series, *, integers: bool) -> set[str]:
    """What the texts say of the decimal sign: ".", "," or "?" for a number that can be read two ways.

    `integers`: the numbers count things, so that the 1,234 among them is no fraction.
    """
    numbers = _numbers(texts.unique())
    signed = numbers.filter(numbers.str.contains("[.,]"))
    point, comma = signed.str.contains(_decimal(".", ",")), signed.str.contains(_decimal(",", "."))
    open_ = signed.filter(~point & ~comma)
    signs = {sign for sign, seen in ((".", point), (",", comma)) if seen.any()}
    if open_.is_empty():
        return signs
    if not integers:
        return signs | {"?"}
    grouped = {"," if sign == "." else "." for sign in ".," if open_.str.contains(sign, literal=True).any()}
    return signs | grouped


def decimal_sign(evidence: Iterable[str], path: Path) -> str:
    """The file's decimal sign; XspError where the evidence contradicts itself or leaves two readings."""
    seen = set(evidence)
    again = "Export it again under one locale: LC_ALL=C ncu --csv --print-units base"
    if {".", ","} <= seen:
        raise XspError("its numbers are written in two ways: both 1.5 and 1,5 occur", path=path, advice=again)
    signs = seen - {"?"}
    if not signs and "?" in seen:
        raise XspError(
            "its numbers can be read in two ways: nothing tells whether 1,234 is a thousand or a fraction",
            path=path,
            advice=again,
        )
    return signs.pop() if signs else "."


def to_floats(texts: pl.Expr, sign: str) -> pl.Expr:
    """The numbers, null where a text is none."""
    bare = texts.str.replace_all(_GROUPING, "").str.replace_all("." if sign == "," else ",", "", literal=True)
    value = bare.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)
