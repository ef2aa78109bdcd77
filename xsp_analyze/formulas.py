"""Formulas as plain functions over polars expressions, each with its source."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Floats, Ints

__all__ = [
    "arithmetic_intensity",
    "bootstrap_interval",
    "first_saturating_batch",
    "flop_per_s",
    "is_memory_bound",
    "known_sum",
    "mean_of",
    "ordered_mean",
    "ordered_sum",
    "quotient",
    "ratio",
    "share_of_sum",
    "throughput_per_s",
    "total_of",
    "trimmed_count",
    "trimmed_mean",
    "weighted_mean",
]

_MEDIAN_OF = 3
_TRIM_ONE_IN = 5
_SATURATED_GAIN = 1.05
_NS_PER_S = 1e9
_RESAMPLES = 1000
_MAX_DRAWS = 20_000_000


def trimmed_count(count: pl.Expr) -> pl.Expr:
    """How many of `count` values XSP drops at each end: none of 1 or 2, one of 3, else floor(0.2 count).

    Source: the trimmed mean of XSP's own analysis scripts.
    """
    return pl.when(count == _MEDIAN_OF).then(1).otherwise(count // _TRIM_ONE_IN)


def trimmed_mean(value: pl.Expr) -> pl.Expr:
    """XSP's trimmed mean of the known values: n < 3 mean, n = 3 median, else floor(0.2 n) dropped at each end."""
    values = value.drop_nulls()
    dropped = trimmed_count(values.len())
    return values.sort().slice(dropped, values.len() - 2 * dropped).mean()


def ordered_sum(value: pl.Expr) -> pl.Expr:
    """The sum of the known values, added up by size and one by one.

    Of fractions one that depends on rows' order, on how threads share them or on the pieces that a column lies in
    differs in its last digit.
    """
    return value.drop_nulls().sort().cum_sum().last().fill_null(0)


def ordered_mean(value: pl.Expr) -> pl.Expr:
    """The mean of the known values, from `ordered_sum`; null where none is known."""
    return pl.when(value.count() > 0).then(quotient(ordered_sum(value), value.count()))


def total_of(values: pl.Series) -> float:
    """The sum of the known values, rounded once; 0 where there are none."""
    if values.dtype.is_integer():
        return float(values.sum())
    return math.fsum(values.drop_nulls().to_numpy())


def mean_of(values: pl.Series) -> float:
    """The mean of the known values, from `total_of`; 0 where there are none."""
    return total_of(values) / max(values.count(), 1)


def known_sum(value: pl.Expr) -> pl.Expr:
    """The sum of the known values; null where none is known."""
    return pl.when(value.count() > 0).then(ordered_sum(value))


def quotient(of: pl.Expr, to: pl.Expr | float) -> pl.Expr:
    """The one over the other, rounded once.

    By one value for all rows polars multiplies by its reciprocal, which differs in the last digit, and how many rows
    have one value depends on how they are dealt out to threads. So each row is given a divisor of its own.
    """
    return of / (to + 0 * of)


def ratio(of: pl.Expr, to: pl.Expr) -> pl.Expr:
    """The one over the other, null where the other is 0: a share of nothing is unknown."""
    return pl.when(to != 0).then(quotient(of, to))


def share_of_sum(column: str, by: Sequence[str] = ()) -> pl.Expr:
    """Each row's part of the column's sum (over the rows with the same `by`); null where that is 0 or unknown."""
    total = ordered_sum(pl.col(column))
    total = total.over(by) if by else total
    return pl.when(total > 0).then(quotient(pl.col(column), total))


def weighted_mean(value: pl.Expr, weight: pl.Expr) -> pl.Expr:
    """The mean of the known values, weighted; null where none is known or all weights are 0."""
    total = ordered_sum(weight.filter(value.is_not_null()))
    return pl.when(total > 0).then(ordered_sum(value * weight) / total)


def arithmetic_intensity(flop: pl.Expr, read_bytes: pl.Expr, write_bytes: pl.Expr) -> pl.Expr:
    """Flop per byte of DRAM traffic; null where no bytes moved. Source: Williams et al., Roofline, CACM 2009."""
    moved = read_bytes + write_bytes
    return pl.when(moved > 0).then(quotient(flop, moved))


def flop_per_s(flop: pl.Expr, duration_ns: pl.Expr) -> pl.Expr:
    """Arithmetic throughput over `duration_ns`; null where that is 0."""
    return pl.when(duration_ns > 0).then(quotient(flop * _NS_PER_S, duration_ns))


def is_memory_bound(intensity: pl.Expr, ideal: float | None) -> pl.Expr:
    """Whether the intensity lies left of the roofline's ridge, peak flop/s over peak byte/s; null: either unknown."""
    return intensity < pl.lit(ideal, dtype=pl.Float64)


def throughput_per_s(batch_size: pl.Expr, latency_ns: pl.Expr) -> pl.Expr:
    """Inputs per second."""
    return pl.when(latency_ns > 0).then(quotient(batch_size * _NS_PER_S, latency_ns))


def first_saturating_batch(throughput: dict[int, float]) -> int | None:
    """XSP's optimal batch size: the first whose doubling raises throughput by 5 % or less; null: none measured."""
    for batch in sorted(throughput):
        doubled = throughput.get(2 * batch)
        if doubled is not None and doubled <= _SATURATED_GAIN * throughput[batch]:
            return batch
    return None


def bootstrap_interval(values: Floats | Ints, *, seed: int = 0) -> tuple[Floats, Floats]:
    """The 95 % percentile-bootstrap interval of the trimmed mean of every row of `values` (rows x steps).

    Deterministic; not a number where there are fewer than 3 steps. Source: Efron and Tibshirani, 1993, chapter 13.
    """
    rows, steps = values.shape
    if steps < _MEDIAN_OF:
        unknown = np.full(rows, np.nan)
        return unknown, unknown
    resamples = min(_RESAMPLES, max(100, _MAX_DRAWS // max(rows * steps, 1)))
    picks = np.random.default_rng(seed).integers(0, steps, size=(resamples, steps))
    dropped = 1 if steps == _MEDIAN_OF else steps // _TRIM_ONE_IN
    low, high = np.empty(rows), np.empty(rows)
    for row in range(rows):
        means = np.sort(values[row][picks], axis=1)[:, dropped : steps - dropped].mean(axis=1)
        low[row], high[row] = np.quantile(means, (0.025, 0.975))
    return low, high
