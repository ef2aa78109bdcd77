"""Where a series of runs changed, and where it did not."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_analyze.history.changes import Kind, _exact_search, changes_in, scatter_of


def _series(
    *levels: tuple[int, float], noise: float = 0.01, seed: int = 1
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Step times in ns: so many runs at each level of ms."""
    means = np.concatenate([np.full(count, level * 1e6) for count, level in levels])
    return means * np.exp(np.random.default_rng(seed).normal(size=len(means)) * noise)


def test_a_change_is_where_it_was_planted() -> None:
    (change,) = changes_in(_series((40, 10.0), (20, 10.5)))
    assert (change.kind, change.at) == (Kind.STEP, 40)
    assert change.low < 1.05 < change.high
    assert change.before == pytest.approx(10e6, rel=0.01)
    assert change.after == pytest.approx(10.5e6, rel=0.01)
    assert change.p_value < 1e-4
    assert change.rank_p_value < 1e-4


def test_faster_is_a_change_too() -> None:
    (change,) = changes_in(_series((40, 10.0), (20, 9.5)))
    assert change.ratio == pytest.approx(0.95, abs=0.01)


def test_two_changes_close_by_are_two() -> None:
    series = changes_in(_series((50, 10.0), (10, 10.5), (40, 10.0)))
    assert [change.at for change in series] == [50, 60]


def test_equal_runs_have_no_change() -> None:
    assert sum(len(changes_in(_series((100, 10.0), seed=seed))) for seed in range(20)) == 0


def test_an_outlier_is_no_change() -> None:
    values = _series((60, 10.0))
    values[30] *= 1.5
    values[59] *= 2
    assert changes_in(values) == []


def test_a_step_far_above_the_noise_is_where_it_is() -> None:
    values = [10e6 + number % 3 * 1e4 for number in range(20)] + [11e6 + number % 3 * 1e4 for number in range(8)]
    assert [change.at for change in changes_in(values)] == [20]


def test_three_runs_are_too_few_and_four_enough() -> None:
    values = _series((60, 10.0), (4, 12.0))
    assert changes_in(values[:63]) == []
    assert [change.at for change in changes_in(values)] == [60]


def test_a_drift_is_one_drift_and_no_stairs() -> None:
    values = _series((300, 10.0)) * np.linspace(1, 1.1, 300)
    (change,) = changes_in(values)
    assert change.kind is Kind.DRIFT
    assert change.ratio == pytest.approx(1.1, abs=0.01)
    assert (change.begin, change.end) == (0, 299)


@pytest.mark.parametrize(("begin", "runs"), [(30, 40), (50, 50), (0, 40)])
def test_a_drift_with_a_level_beside_it_is_one_drift(begin: int, runs: int) -> None:
    ramp = 1 + 0.1 * np.clip((np.arange(100) - begin) / runs, 0, 1)
    (change,) = changes_in(_series((100, 10.0)) * ramp)
    assert change.kind is Kind.DRIFT
    assert abs(change.begin - begin) <= 6
    assert abs(change.end - min(begin + runs, 99)) <= 6
    assert change.low < 1.1 < change.high


def test_a_step_within_a_drift_is_a_step() -> None:
    ramp = 1 + 0.1 * np.arange(1000) / 1000
    series = changes_in(_series((500, 10.0), (500, 10.8)) * ramp)
    assert [change.kind for change in series] == [Kind.DRIFT, Kind.STEP, Kind.DRIFT]
    assert series[1].at == 500


def test_steps_in_one_direction_are_no_drift() -> None:
    series = changes_in(_series((30, 10.0), (20, 10.3), (20, 10.6), (30, 10.9)))
    assert [change.kind for change in series] == [Kind.STEP] * 3


def test_the_search_alone_answers_as_the_library_does() -> None:
    library = pytest.importorskip("ruptures")
    values = (_series((40, 10.0), (30, 10.2), (30, 10.1)) / 1e5)[:, None]
    for penalty in (0.5, 5.0, 50.0):
        kernel = library.KernelCPD(kernel="linear", min_size=2).fit(values)
        assert _exact_search()(values, penalty) == kernel.predict(pen=penalty)[:-1]


def test_a_measure_without_noise_changes_by_little() -> None:
    (change,) = changes_in([1_000_000.0] * 20 + [1_010_000.0] * 20)
    assert change.at == 20
    assert changes_in([1_000_000.0] * 40) == []


@pytest.mark.parametrize("values", [[], [1.0] * 7, [1.0, float("nan")] * 10])
def test_too_few_or_unknown_values_say_nothing(values: list[float]) -> None:
    assert changes_in(values) == []


def test_scatter_is_from_run_to_run_and_no_change_moves_it() -> None:
    scatter = scatter_of(_series((500, 10.0), (500, 20.0)))
    assert scatter == pytest.approx(0.01, rel=0.1)
    assert scatter_of([1.0, 2.0]) is None
