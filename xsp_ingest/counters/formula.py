"""Printed numbers and their units in base units, and how a canonical counter follows from a tool's own, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import XspError
from xsp_model.vocabulary import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "UNAVAILABLE",
    "Formula",
    "Measured",
    "Unit",
    "base_unit",
    "canonical",
    "decimal_sign",
    "is_unit",
    "same",
    "to_floats",
    "with_evidence",
]

# How a canonical counter follows from a tool's own, as data, and the step from one to the other.


@dataclass(frozen=True, slots=True)
class Formula:
    """(sum of weight * counter) * (product of `times`) / `per`, over counters in base units.

    With `over`: as a share of the sum of those. Every counter of `terms`, `times` and `over` must have been collected;
    those of `extra` are added where they were.
    `chips`: the chips whose counters these are; empty: all that the tool knows.
    """

    terms: Mapping[str, float]
    extra: Mapping[str, float] = field(default_factory=dict)
    times: Sequence[str] = ()
    over: Sequence[str] = ()
    per: float = 1
    chips: Sequence[str] = ()

    @property
    def is_same(self) -> bool:
        """Whether it only gives a counter another name."""
        return not (self.extra or self.times or self.over) and self.per == 1 and list(self.terms.values()) == [1]

    @property
    def names(self) -> tuple[str, ...]:
        """Every counter it may read."""
        return (*self.terms, *self.extra, *self.times, *self.over)

    def value(self, columns: Collection[str]) -> pl.Expr | None:
        """The expression over these columns, null where a needed value is; None where a needed column is missing."""
        if any(name not in columns for name in (*self.terms, *self.times, *self.over)):
            return None
        total = pl.lit(0.0)
        for name, weight in self.terms.items():
            total = total + pl.col(name) * weight
        for name, weight in self.extra.items():
            if name in columns:
                total = total + pl.col(name).fill_null(0) * weight
        for name in self.times:
            total = total * pl.col(name)
        if self.over:
            base = pl.sum_horizontal(self.over, ignore_nulls=False)
            total = pl.when(base > 0).then(total / base)
        return total / self.per


def same(name: str, *, chips: Sequence[str] = ()) -> Formula:
    """The counter as it is, under its canonical name."""
    return Formula({name: 1}, chips=chips)


@dataclass(frozen=True, slots=True)
class Measured:
    """The counters of one file: `wide` has a column `row` and one Float64 column a counter, all in base units."""

    wide: pl.DataFrame
    units: Mapping[str, str]
    tool: str


def canonical(measured: Measured, table: Mapping[str, Sequence[Formula]]) -> pl.DataFrame:
    """The staging table `metrics`: canonical counters first found by the order of formulas, then all others as named.

    A counter that only got another name is not repeated; what went into a sum is kept beside it.
    """
    wide, columns = measured.wide, set(measured.wide.columns)
    frames = [_one(measured, metric, formulas) for metric, formulas in table.items()]
    renamed = {name for formulas in table.values() if (name := _only_source(formulas, columns)) is not None}
    others = [name for name in wide.columns if name != "row" and name not in renamed]
    frames += [_rows(wide, name, pl.col(name), measured.units[name], pl.lit(measured.tool)) for name in others]
    types = pl.Schema(
        {"row": pl.Int64(), "metric": pl.String(), "value": pl.Float64(), "unit": pl.String(), "source": pl.String()}
    )
    return pl.concat([pl.DataFrame(schema=types), *(f.select(*types).cast(types) for f in frames if f.height)])


def _only_source(formulas: Sequence[Formula], columns: Collection[str]) -> str | None:
    """The first counter that these formulas only give another name."""
    return next((next(iter(f.terms)) for f in formulas if f.is_same and f.value(columns) is not None), None)


def _one(measured: Measured, metric: str, formulas: Sequence[Formula]) -> pl.DataFrame:
    columns = measured.wide.columns
    sources = [(f, value) for f in formulas if (value := f.value(columns)) is not None]
    if not sources:
        return pl.DataFrame()
    source = pl.lit(None, pl.String)
    for formula, value in reversed(sources):
        label = measured.tool if formula.is_same else f"{measured.tool}, derived"
        source = pl.when(value.is_not_null()).then(pl.lit(label)).otherwise(source)
    return _rows(measured.wide, metric, pl.coalesce(v for _, v in sources), COUNTERS[metric].unit, source)


def _rows(wide: pl.DataFrame, metric: str, value: pl.Expr, unit: str, source: pl.Expr) -> pl.DataFrame:
    return wide.select(
        "row", pl.lit(metric).alias("metric"), value.alias("value"), pl.lit(unit).alias("unit"), source.alias("source")
    ).drop_nulls("value")


# Printed numbers, under any locale, and their units, turned into base units: byte, ns, Hz, 1, and what is counted.


@dataclass(frozen=True, slots=True)
class Unit:
    """A base unit and how to get there: value * multiply / divide (two integers, so that 66.61 % is 0.6661)."""

    name: str
    multiply: float = 1
    divide: float = 1


_PLAIN = {"": Unit("1"), "1": Unit("1"), "%": Unit("1", divide=100)}
_POWER = {"": 0, "K": 1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIME_NS: Mapping[str, float] = {
    **dict.fromkeys(("ns", "nsecond", "nsec"), 1),
    **dict.fromkeys(("us", "usecond", "usec", "\u00b5s", "\u03bcs"), 1e3),
    **dict.fromkeys(("ms", "msecond", "msec"), 1e6),
    **dict.fromkeys(("s", "second", "sec"), 1e9),
    **dict.fromkeys(("minute", "min"), 60e9),
    **dict.fromkeys(("hour", "h"), 3600e9),
}
_BYTE = re.compile(r"([KMGTP]?)(i?)(?:byte|bytes|B)\Z")
_HERTZ = re.compile(r"([KkMGT]?)[hH][zZ]\Z")
_COUNTED = re.compile(r"([KMGTP])([a-z]{2,})\Z")
_NS_PER_S = 1e9


@lru_cache(maxsize=4096)
def base_unit(text: str, *, binary: bool = False) -> Unit:
    """The base unit of a tool's unit; one that is not known stays as it is written.

    `binary`: KB, MB and GB are powers of 1024, as nvprof means them; Nsight Compute's are powers of 1000.
    A rate is per second whatever the tool chose; a percentage is a share of 0..1.
    """
    counted, _, per = text.strip().partition("/")
    unit = _simple(counted.strip(), 1024 if binary else 1000)
    per = per.strip()
    if not per:
        return unit
    if per not in _TIME_NS:
        return Unit(f"{unit.name}/{per}", unit.multiply, unit.divide)
    name = "Hz" if unit.name in {"cycle", "1"} and counted else f"{unit.name}/s"
    return Unit(name, unit.multiply * _NS_PER_S, unit.divide * _TIME_NS[per])


def is_unit(text: str) -> bool:
    """Whether it is a share, or a unit of time, bytes or frequency: none of these is anything else."""
    return text == "%" or base_unit(text).name.split("/")[0] in {"ns", "byte", "Hz"}


def _simple(text: str, step: int) -> Unit:
    if text in _PLAIN:
        return _PLAIN[text]
    if text in _TIME_NS:
        return Unit("ns", _TIME_NS[text])
    if match := _BYTE.match(text):
        return Unit("byte", (1024 if match[2] else step) ** _POWER[match[1]])
    if match := _HERTZ.match(text):
        return Unit("Hz", 1000 ** _POWER[match[1]])
    if match := _COUNTED.match(text):
        return Unit(match[2], 1000 ** _POWER[match[1]])
    return Unit(text)


# Numbers as programs print them under any locale, read by the evidence of the whole file.
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
