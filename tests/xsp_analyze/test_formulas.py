"""Formulas on literals."""

from __future__ import annotations

import math
import random

import numpy as np
import polars as pl
import pytest

from xsp_analyze import formulas


def value(expression: pl.Expr, **columns: object) -> object:
    return pl.DataFrame(columns).select(expression.alias("x"))["x"].to_list()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4], 4.0),
        ([4, 8], 6.0),
        ([9, 1, 2], 2.0),
        ([1, 2, 3, 100], 26.5),
        ([100, 1, 2, 3, 4], 3.0),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 1000], 5.5),
        ([9, None, 1, 2], 2.0),
        ([None], None),
    ],
)
def test_trimmed_mean_drops_a_fifth_at_each_end(values: list[int | None], expected: float | None) -> None:
    columns = {"x": pl.Series(values, dtype=pl.Int64)}
    assert value(formulas.trimmed_mean(pl.col("x")), **columns) == [expected]


def test_worked_example_of_the_paper_is_compute_bound() -> None:
    # Third kernel of ResNet50's first convolution on a V100: 62 GFlop over 12.1 + 296 MB, against 15700/900.
    intensity = formulas.arithmetic_intensity(pl.col("f"), pl.col("r"), pl.col("w"))
    assert value(intensity, f=[62e9], r=[12.1e6], w=[296e6]) == [pytest.approx(201.2, abs=0.1)]
    assert value(formulas.is_memory_bound(intensity, 15700 / 900), f=[62e9], r=[12.1e6], w=[296e6]) == [False]


def test_unknown_stays_unknown() -> None:
    assert value(formulas.arithmetic_intensity(pl.col("f"), pl.col("r"), pl.col("w")), f=[1.0], r=[0.0], w=[0.0]) == [
        None
    ]
    assert value(formulas.is_memory_bound(pl.col("i"), None), i=[3.0]) == [None]
    assert value(formulas.throughput_per_s(pl.col("b"), pl.col("l")), b=pl.Series([None], dtype=pl.Int64), l=[3.0]) == [
        None
    ]
    assert value(formulas.known_sum(pl.col("x")), x=pl.Series([None, None], dtype=pl.Int64)) == [None]
    assert value(formulas.share_of_sum("x"), x=[0, 0]) == [None, None]


def test_occupancy_is_weighted_by_duration_of_what_was_measured() -> None:
    mean = value(formulas.weighted_mean(pl.col("o"), pl.col("d")), o=[0.5, 1.0, None], d=[100, 300, 1000])
    assert mean == [(0.5 * 100 + 1.0 * 300) / 400]


def test_optimal_batch_is_the_first_whose_doubling_gains_five_percent_or_less() -> None:
    assert formulas.first_saturating_batch({1: 100.0, 2: 190.0, 4: 199.0, 8: 208.0}) == 2
    assert formulas.first_saturating_batch({1: 100.0, 2: 190.0}) is None
    assert formulas.first_saturating_batch({}) is None


def test_bootstrap_interval_holds_the_mean_and_repeats_itself() -> None:
    values = np.asarray([[10, 12, 11, 13, 9, 10, 12], [5, 5, 5, 5, 5, 5, 5]])
    low, high = formulas.bootstrap_interval(values)
    assert low[0] < 11 < high[0]
    assert (low[1], high[1]) == (5.0, 5.0)
    again = formulas.bootstrap_interval(values)
    assert again[0].tolist() == low.tolist()
    assert np.isnan(formulas.bootstrap_interval(np.asarray([[1, 2]]))[0]).all()


def test_a_quotient_is_rounded_once_by_whatever_rows_are_beside_it() -> None:
    rows = pl.DataFrame({"ns": [5_733_301, 346_637, 0, None, 1]})
    total = int(rows["ns"].sum())
    for divisor in (pl.lit(total), pl.col("ns").sum(), total):
        shares = rows.select(formulas.quotient(pl.col("ns"), divisor))["ns"].to_list()
        assert shares == [None if each is None else each / total for each in rows["ns"]]


def test_sums_of_fractions_do_not_depend_on_order_or_pieces() -> None:
    values = [math.sqrt(number) for number in range(200)]
    pieces = [pl.DataFrame({"x": values[first : first + 7]}) for first in range(0, 200, 7)]
    sums = {
        pl.concat(random.Random(seed).sample(pieces, len(pieces)), rechunk=False)  # noqa: S311 (no secret)
        .select(formulas.ordered_sum(pl.col("x")))
        .item()
        for seed in range(20)
    }
    assert len(sums) == 1
    assert sums.pop() == pytest.approx(math.fsum(values), rel=1e-12)
    none = pl.DataFrame({"x": [None, None]}, schema={"x": pl.Float64})
    assert none.select(formulas.ordered_sum(pl.col("x"))).item() == 0
    assert none.select(formulas.ordered_mean(pl.col("x"))).item() is None
