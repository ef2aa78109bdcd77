"""Which ranges contain which, against a look at every pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.analyses.nsys.projection import Calls, envelopes
from xsp_analyze.analyses.nsys.sources import containing, lanes, plain_nest, tightest

if TYPE_CHECKING:
    from random import Random

    from xsp_model.columns.arrays import Ints

_LAUNCHES = st.lists(st.tuples(*[st.integers(0, 9)] * 5), max_size=12)
_INTERVALS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)).map(lambda x: (x[0], x[0] + x[1])), max_size=12)


def _bounds(intervals: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    pairs = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(_INTERVALS, _INTERVALS)
def test_every_pair_comes_once(ranges: list[tuple[int, int]], calls: list[tuple[int, int]]) -> None:
    pairs = [
        (int(i), int(o))
        for inner, outer in containing(*_bounds(ranges), *_bounds(calls))
        for i, o in zip(inner, outer, strict=True)
    ]
    every = [(i, o) for i, c in enumerate(calls) for o, r in enumerate(ranges) if r[0] <= c[0] and c[1] <= r[1]]
    assert sorted(pairs) == every


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
    rows = lanes(*_bounds(ranges))
    assert len(rows) == count
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(ranges)))


def _halved(start: int, end: int, cuts: list[int]) -> list[tuple[int, int]]:
    """A nest: the interval, cut in two time and again where the numbers say."""
    if end - start < 2 or not cuts:
        return [(start, end)]
    middle = start + 1 + cuts[0] % (end - start - 1)
    return [(start, end), *_halved(start, middle, cuts[1::2]), *_halved(middle, end, cuts[2::2])]


@given(st.lists(st.integers(0, 99), max_size=12).map(lambda cuts: _halved(0, 40, cuts)) | _INTERVALS, st.randoms())
def test_a_plain_nest_is_found_without_looking_at_pairs(ranges: list[tuple[int, int]], random: Random) -> None:
    random.shuffle(ranges)
    nest = plain_nest(*_bounds(ranges))
    together = [(a, b) for i, a in enumerate(ranges) for b in ranges[:i] if max(a[0], b[0]) < min(a[1], b[1])]
    holds = [a != b and ((a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])) for a, b in together]
    assert (nest is not None) == (all(holds) and all(a < b for a, b in ranges))
    if nest is not None:
        assert nest[0].tolist() == tightest(*_bounds(ranges)).tolist()
        around = [sum(a[0] <= r[0] and r[1] <= a[1] for a in ranges) - 1 for r in ranges]
        assert nest[1].tolist() == around


@given(_INTERVALS, _LAUNCHES, st.booleans())
def test_an_envelope_is_of_all_calls_inside(
    ranges: list[tuple[int, int]],
    launches: list[tuple[int, ...]],
    in_turn: bool,  # noqa: FBT001 (hypothesis gives it)
) -> None:
    calls = sorted((start, start + length, work, work + long, number) for start, length, work, long, number in launches)
    if in_turn:  # calls that follow one another, each with a number of its own
        calls = [(i, i, *call[2:4], i) for i, call in enumerate(calls)]
    envelope = envelopes(*_bounds(ranges), Calls(*np.array(calls, dtype=np.int64).reshape(-1, 5).T))
    columns = (envelope.rows, envelope.first, envelope.last, envelope.operations)
    inside = [[c for c in calls if r[0] <= c[0] and c[1] <= r[1]] for r in ranges]
    expected = [
        (row, min(c[2] for c in held), max(c[3] for c in held), len({c[4] for c in held}))
        for row, held in enumerate(inside)
        if held
    ]
    assert list(zip(*(each.tolist() for each in columns), strict=True)) == expected
    assert envelope.outside.tolist() == [not any(r[0] <= c[0] and c[1] <= r[1] for r in ranges) for c in calls]
