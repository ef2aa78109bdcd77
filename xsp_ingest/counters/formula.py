"""How a canonical counter follows from a tool's own, as data, and the step from one to the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_model.counters import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Formula", "Measured", "canonical", "same"]


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
