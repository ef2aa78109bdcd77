"""The statistics that every summary of `nsys stats` prints, and the columns they stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import polars.selectors as cs

from xsp_analyze.core import Column, Role
from xsp_analyze.formulas import quotient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView


__all__ = [
    "SUMMED",
    "bytes_column",
    "deviation",
    "integer",
    "name_column",
    "share",
    "spread",
    "spread_columns",
    "summary",
    "time_columns",
    "with_runs",
]

SUMMED = ("share", "total_ns", "count")
"""Columns of `summary` that add up over its rows."""

_SPREAD = (
    ("mean", "Avg", pl.Float64(), "Mean"),
    ("median", "Med", pl.Float64(), "Median"),
    ("min", "Min", pl.Int64(), "Smallest"),
    ("max", "Max", pl.Int64(), "Largest"),
    ("std", "StdDev", pl.Float64(), "Sample standard deviation (0 for a single one)"),
)


def with_runs(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows, with their run where the trace holds several: nsys writes a report of each file alone."""
    return rows if len(view.timed_runs) > 1 else rows.drop("run_id")


def spread(value: str, prefix: str = "") -> list[pl.Expr]:
    """Mean, median, least, greatest and sample deviation of a column, for `agg`."""
    column = pl.col(value)
    return [
        column.mean().alias(f"{prefix}mean_ns"),
        column.median().alias(f"{prefix}median_ns"),
        column.min().alias(f"{prefix}min_ns"),
        column.max().alias(f"{prefix}max_ns"),
        deviation(column).alias(f"{prefix}std_ns"),
    ]


def deviation(value: pl.Expr) -> pl.Expr:
    """The sample standard deviation of a column of integers; 0 of a single one or none.

    From integer sums, which are the same in whatever order threads add them: polars' own `std` differs in its last
    digit from run to run. 128 bits hold them while the values' sum stays below 1.3e19 (400 years of ns).
    """
    count, wide = value.count().cast(pl.Int128), value.cast(pl.Int128)
    total = wide.sum()
    squares = (count * (wide * wide).sum() - total * total).cast(pl.Float64)
    pairs = value.count().cast(pl.Float64) * (value.count().cast(pl.Float64) - 1)
    return pl.when(pairs > 0).then(quotient(squares, pairs).sqrt()).otherwise(0.0)


def share() -> pl.Expr:
    """Each row's part of all rows' total, 0..1; null where that is nothing."""
    total = pl.col("total_ns").sum()
    return pl.when(total != 0).then(quotient(pl.col("total_ns"), total)).alias("share")


def summary(rows: pl.LazyFrame, by: Sequence[str], value: str = "duration_ns") -> pl.LazyFrame:
    """One row a group: share, total_ns, count and the spread; groups in order of their keys, words being texts."""
    grouped = rows.group_by(by).agg(pl.col(value).sum().alias("total_ns"), pl.len().alias("count"), *spread(value))
    return (
        grouped.with_columns(cs.categorical().cast(pl.String))
        .sort(by)
        .with_columns(share(), pl.col("count").cast(pl.Int64))
    )


def spread_columns(what: str, *, heading: str = "", prefix: str = "") -> tuple[Column, ...]:
    """Columns for `spread`, headed as `Avg (ns)` with `heading` before."""
    return tuple(
        Column(
            f"{prefix}{ours}_ns",
            dtype,
            f"{doc} of {what}.",
            "ns",
            header=f"{heading}{theirs} (ns)",
            decimals=1 if dtype.is_float() else None,
        )
        for ours, theirs, dtype, doc in _SPREAD
    )


def time_columns(what: str, count_header: str) -> tuple[Column, ...]:
    """Columns for `summary` of durations, as `nsys stats` orders and heads them."""
    return (
        Column(
            "share",
            pl.Float64(),
            "Part of the sum over the rows listed, 0 to 1.",
            "share",
            header="Time (%)",
            decimals=1,
        ),
        Column("total_ns", pl.Int64(), f"Sum of {what}.", "ns", header="Total Time (ns)"),
        integer("count", "How many there were.", count_header),
        *spread_columns(what),
    )


def integer(name: str, doc: str, header: str, *, role: Role = Role.MEASURE, unit: str = "") -> Column:
    """A column of whole numbers."""
    return Column(name, pl.Int64(), doc, unit, role, header)


def bytes_column(name: str, doc: str, header: str) -> Column:
    """A column of whole bytes, which nsys prints in MB."""
    return Column(name, pl.Int64(), doc, "byte", header=header, decimals=3)


def name_column(name: str, doc: str, header: str, *, role: Role = Role.KEY) -> Column:
    """A column of texts."""
    return Column(name, pl.String(), doc, role=role, header=header)
