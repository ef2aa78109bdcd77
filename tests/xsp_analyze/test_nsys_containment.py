"""Which ranges contain which, against a look at every pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.analyses.nsys.containment import containing, lanes, tightest

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

_INTERVALS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)).map(lambda x: (x[0], x[0] + x[1])), max_size=12)


def _bounds(intervals: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    pairs = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(_INTERVALS, _INTERVALS)
def test_every_pair_comes_once(ranges: list[tuple[int, int]], calls: list[tuple[int, int]]) -> None:
    found = [
        (int(i), int(o))
        for inner, outer in containing(*_bounds(ranges), *_bounds(calls))
        for i, o in zip(inner, outer, strict=True)
    ]
    every = [(i, o) for i, c in enumerate(calls) for o, r in enumerate(ranges) if r[0] <= c[0] and c[1] <= r[1]]
    assert sorted(found) == every


@given(_INTERVALS)
def test_the_tightest_is_the_shortest_other_one(ranges: list[tuple[int, int]]) -> None:
    def best(i: int) -> int:
        others = [
            (r[1] - r[0], o) for o, r in enumerate(ranges) if o != i and r[0] <= ranges[i][0] and ranges[i][1] <= r[1]
        ]
        return min(others)[1] if others else -1

    assert tightest(*_bounds(ranges)).tolist() == [best(i) for i in range(len(ranges))]


@pytest.mark.parametrize(
    ("ranges", "count"),
    [
        pytest.param([(i * 10, i * 10 + 10) for i in range(1000)], 1, id="touching"),
        pytest.param([(i * 10, i * 10 + 15) for i in range(1000)], 2, id="each overlaps the next"),
        pytest.param([(i, 5000 - i) for i in range(1000)], 1000, id="nested"),
        pytest.param([(5, 5)] * 3, 3, id="empty and equal"),
    ],
)
def test_there_are_no_more_lanes_than_ranges_open_at_once(ranges: list[tuple[int, int]], count: int) -> None:
    found = lanes(*_bounds(ranges))
    assert len(found) == count
    assert sorted(np.concatenate(found).tolist()) == list(range(len(ranges)))
