"""The rank test against counts made by hand, and against all ways to share values out."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from xsp_analyze.compare.significance import rank_test


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / 20),  # of C(6, 3) ways two lie so far out
        ([1, 2, 4], [3, 5, 6], 4 / 20),  # rank sums 6, 7 and 14, 15
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([1, 6], [2, 5], 1.0),  # the sum is the middle one
        ([7, 7, 7], [7, 7], 1.0),  # equal values tell nothing
    ],
)
def test_small_samples_are_counted(before: list[float], after: list[float], p: float) -> None:
    test = rank_test(before, after)
    assert test is not None
    assert test.p == pytest.approx(p)


def test_steps_of_the_real_pair_by_hand() -> None:
    """Six steps of 75.7 to 81.2 ms and six of 114.8 to 123.1 ms: two of C(12, 6) = 924 ways."""
    test = rank_test([75.7, 76.8, 76.3, 76.8, 78.5, 81.2], [118.1, 117.1, 114.8, 123.1, 116.7, 116.1])
    assert test is not None
    assert test.p == test.min_p == pytest.approx(2 / 924)


def test_three_of_each_cannot_decide_and_four_can() -> None:
    three, four = (rank_test(range(n), range(n, 2 * n)) for n in (3, 4))
    assert three is not None
    assert four is not None
    assert three.min_p == pytest.approx(0.1)
    assert four.min_p == pytest.approx(2 / 70)


def test_ties_are_as_all_ways_to_share_the_values_out() -> None:
    values = [1, 2, 2, 3, 3, 3, 5]
    first = 3
    ranks = {1: 1.0, 2: 2.5, 3: 5.0, 5: 7.0}
    middle = first * (len(values) + 1) / 2
    sums = [sum(ranks[values[i]] for i in chosen) for chosen in combinations(range(len(values)), first)]
    observed = abs(sum(ranks[v] for v in values[:first]) - middle)
    test = rank_test(values[:first], values[first:])
    assert test is not None
    assert test.p == pytest.approx(np.mean([abs(s - middle) >= observed for s in sums]))


def test_of_many_values_the_normal_distribution_is_taken() -> None:
    before, after = list(range(21)), [10.5 + n for n in range(21)]
    larger = sum(a > b for a in after for b in before)
    mean, deviation = 21 * 21 / 2, math.sqrt(21 * 21 * 43 / 12)
    expected = math.erfc((larger - mean - 0.5) / deviation / math.sqrt(2))
    test = rank_test(before, after)
    assert test is not None
    assert test.p == pytest.approx(expected)


def test_nothing_or_unknown_on_a_side_is_no_test() -> None:
    assert rank_test([], [1.0]) is None
    assert rank_test([float("nan"), 1.0], [1.0]) is None
