"""The statistics of comparisons: against published tables, and by what they say of noise that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from xsp_analyze.compare.significance import (
    Estimates,
    StepNoise,
    block_length,
    correlation,
    critical,
    discoveries,
    judge,
    step_noise,
    trimmed_means,
    two_sided,
)
from xsp_analyze.formulas import trimmed_mean

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Floats


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (1e9, 1.960)]
)
def test_critical_values_are_those_of_the_printed_tables(freedom: float, expected: float) -> None:
    assert critical(freedom) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("t", "freedom", "expected"), [(3.365, 5, 0.02), (6.869, 5, 0.001), (0.0, 7, 1.0)])
def test_tails_are_those_of_the_printed_tables(t: float, freedom: float, expected: float) -> None:
    assert two_sided(t, freedom) == pytest.approx(expected, rel=2e-3)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


def test_one_degree_of_freedom_is_the_cauchy_distribution_far_into_its_tail() -> None:
    assert two_sided(1e6, 1) == pytest.approx(2 / np.pi * np.arctan(1e-6), rel=1e-9)


def test_the_worked_example_of_benjamini_and_hochberg() -> None:
    # Their section 3.1: 15 hypotheses, of which the procedure rejects the first four at 5 %.
    p = np.array([0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
                  0.6528, 0.7590, 1.0])  # fmt: skip
    shuffled = np.random.default_rng(0).permutation(len(p))
    q, rejected = discoveries(p[shuffled])
    assert sorted(p[shuffled][rejected]) == [0.0001, 0.0004, 0.0019, 0.0095]
    assert q[shuffled.tolist().index(0)] == pytest.approx(0.0015)


def test_what_was_not_tested_is_not_counted() -> None:
    p = np.array([0.01, np.nan, np.nan, 0.04])
    q, rejected = discoveries(p)
    assert q[0] == pytest.approx(0.02)
    assert rejected.tolist() == [True, False, False, True]
    assert np.isnan(q[1])


@pytest.mark.parametrize("steps", [3, 4, 5, 9, 10, 23])
def test_the_mean_is_the_trimmed_mean_of_the_analyses(steps: int) -> None:
    values = np.random.default_rng(steps).lognormal(size=(3, steps))
    expected = [pl.DataFrame({"v": row}).select(trimmed_mean(pl.col("v"))).item() for row in values]
    assert trimmed_means(values).tolist() == pytest.approx(expected)


def test_two_steps_say_nothing_of_their_noise() -> None:
    noise = step_noise(np.ones((4, 2)))
    assert np.isnan(noise.relative_error).all()
    assert (noise.freedom == 0).all()


def test_the_same_steps_give_the_same_noise() -> None:
    values = np.random.default_rng(1).lognormal(size=(5, 12))
    assert (step_noise(values).relative_error == step_noise(values).relative_error).all()


def test_times_in_another_unit_have_the_same_relative_noise() -> None:
    values = np.random.default_rng(1).lognormal(size=(5, 12))
    assert step_noise(1e6 * values).relative_error == pytest.approx(step_noise(values).relative_error)


def test_steps_that_follow_one_another_are_drawn_in_longer_blocks() -> None:
    lone, tied = (_steps(np.random.default_rng(3), 40, 50, carried_over=c) for c in (0.0, 0.8))
    assert correlation(lone) < 0.2
    assert correlation(tied) > 0.6
    assert block_length(correlation(lone), 50) < block_length(correlation(tied), 50)
    assert np.median(step_noise(tied).relative_error) > 2 * np.median(step_noise(lone).relative_error)


def test_a_run_that_changed_for_good_half_way_through_is_trusted_little() -> None:
    random = np.random.default_rng(5)
    steady = 100 * np.exp(0.01 * random.normal(size=(20, 20)))
    steady[7, 14:] *= 0.5
    noise = step_noise(steady)
    assert noise.relative_error[7] > 0.1
    assert noise.freedom[7] < 4 < noise.freedom[3]


def _steps(random: np.random.Generator, rows: int, steps: int, *, carried_over: float) -> Floats:
    """Times with a noise of 3 %, half of it shared by the rows, as a first-order autoregression."""
    noise = random.normal(size=(rows, steps + 40)) + random.normal(size=steps + 40)
    out = np.zeros_like(noise)
    for step in range(1, steps + 40):
        out[:, step] = carried_over * out[:, step - 1] + noise[:, step]
    times: Floats = 100 * np.exp(0.02 * out[:, 40:])
    return times


@pytest.mark.parametrize(("steps", "carried_over"), [(5, 0.0), (10, 0.0), (10, 0.6), (20, 0.8), (50, 0.8)])
def test_intervals_hold_the_truth_as_often_as_they_say(steps: int, carried_over: float) -> None:
    random = np.random.default_rng(steps)
    held = total = 0
    for _ in range(40):
        sides = [_steps(random, 25, steps, carried_over=carried_over) for _ in range(2)]
        judged = judge(*(Estimates(trimmed_means(s)[None, :], [step_noise(s)]) for s in sides), floor=0.0, alike=False)
        held += int(((judged.low <= 1) & (judged.high >= 1)).sum())
        total += 25
    assert held / total >= 0.92


def test_one_step_a_side_gives_a_ratio_and_no_interval() -> None:
    sides = [Estimates(np.array([[value]]), [StepNoise.unknown(1)]) for value in (100.0, 150.0)]
    judged = judge(*sides, floor=0.01)
    assert judged.ratio[0] == pytest.approx(1.5)
    assert np.isnan([judged.low[0], judged.high[0], judged.p[0]]).all()
    assert judged.run_noise is None


def test_captures_of_one_step_give_an_interval_together() -> None:
    before, after = np.array([[100.0], [102.0], [98.0]]), np.array([[150.0], [147.0], [153.0]])
    judged = judge(*(Estimates(v, [StepNoise.unknown(1)] * 3) for v in (before, after)), floor=0.0)
    assert judged.low[0] < 1.5 < judged.high[0]
    # By hand: logs have a standard deviation of 0.0200 in both; t of 4 degrees of freedom is 2.776.
    assert judged.high[0] / judged.ratio[0] == pytest.approx(np.exp(2.776 * 0.0200 * np.sqrt(2 / 3)), rel=2e-3)


def test_more_captures_tell_a_run_that_is_off_from_a_change() -> None:
    random = np.random.default_rng(0)
    rows, discovered = 40, 0
    for _ in range(40):
        runs = np.exp(0.03 * random.normal(size=(2, 4, 1)) + 0.01 * random.normal(size=(2, 4, rows)))
        sides = [Estimates(100 * side, [StepNoise.unknown(rows)] * 4) for side in runs]
        discovered += bool(discoveries(judge(*sides, floor=0.01).p)[1].any())
    assert discovered <= 5  # 5 % of 40 is 2; 6 or more come by chance once in 70 times


def test_a_value_of_zero_has_no_ratio() -> None:
    noise = [step_noise(np.ones((1, 5)))]
    judged = judge(Estimates(np.array([[0.0]]), noise), Estimates(np.array([[3.0]]), noise), floor=0.01)
    assert np.isnan(judged.ratio[0])
