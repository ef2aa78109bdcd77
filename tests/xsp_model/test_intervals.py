"""Intervals, against a reference that counts instant by instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_model.columns import intervals

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Ints

_PAIRS = st.lists(st.tuples(st.integers(-20, 40), st.integers(-3, 15)), max_size=12)
Pairs = list[tuple[int, int]]


def _arrays(pairs: Pairs) -> tuple[Ints, Ints]:
    start = np.array([s for s, _ in pairs], dtype=np.int64)
    return start, start + np.array([d for _, d in pairs], dtype=np.int64)


def _instants(start: Ints, end: Ints) -> set[int]:
    return {t for s, e in zip(start.tolist(), end.tolist(), strict=True) for t in range(s, e)}


@given(_PAIRS)
def test_merge_covers_the_same_instants_in_disjoint_sorted_intervals(pairs: Pairs) -> None:
    start, end = _arrays(pairs)
    first, last = intervals.merge(start, end)
    assert _instants(first, last) == _instants(start, end)
    assert (last > first).all()
    assert (first[1:] > last[:-1]).all()


@given(_PAIRS)
def test_union_length_is_the_number_of_instants(pairs: Pairs) -> None:
    start, end = _arrays(pairs)
    assert intervals.union_length(start, end) == len(_instants(start, end))


@given(_PAIRS, _PAIRS)
def test_intersection_holds_the_common_instants(a: Pairs, b: Pairs) -> None:
    left, right = intervals.merge(*_arrays(a)), intervals.merge(*_arrays(b))
    first, last = intervals.intersection(left, right)
    assert _instants(first, last) == _instants(*left) & _instants(*right)
    assert (first[1:] > last[:-1]).all()


@given(_PAIRS)
def test_gaps_and_union_fill_the_window(pairs: Pairs) -> None:
    start, end = _arrays(pairs)
    left, right = intervals.gaps(start, end)
    covered, holes = _instants(start, end), _instants(left, right)
    points = [t for s, e in zip(start.tolist(), end.tolist(), strict=True) if e >= s for t in (s, e)]
    assert covered | holes == (set(range(min(points), max(points))) if points else set())
    assert not covered & holes
    assert not [p for p in points for s, e in zip(left.tolist(), right.tolist(), strict=True) if s < p < e]


@given(_PAIRS, st.integers(-(10**15), 10**15))
def test_a_shift_of_time_shifts_the_union(pairs: Pairs, shift: int) -> None:
    start, end = _arrays(pairs)
    first, last = intervals.merge(start, end)
    shifted = intervals.merge(start + shift, end + shift)
    assert (shifted[0] == first + shift).all()
    assert (shifted[1] == last + shift).all()


def test_touching_intervals_join_and_empty_ones_vanish() -> None:
    start, end = _arrays([(0, 5), (5, 5), (20, 0), (30, 1)])
    first, last = intervals.merge(start, end)
    assert first.tolist() == [0, 30]
    assert last.tolist() == [10, 31]


def test_nanoseconds_of_an_epoch_stay_exact() -> None:
    epoch = 1_795_132_800_000_000_001
    assert intervals.union_length(*_arrays([(epoch, 7), (epoch + 3, 9)])) == 12


@pytest.mark.parametrize("function", [intervals.merge, intervals.gaps])
def test_nothing_gives_nothing(function: object) -> None:
    assert callable(function)
    first, last = function(*_arrays([]))
    assert len(first) == len(last) == 0


_ON_LANES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-(1 << 61), 1 << 61), st.integers(0, 1 << 58)), max_size=8
)


@given(_ON_LANES)
def test_what_is_done_to_lanes_one_behind_the_other_is_done_to_each_by_itself(rows: list[tuple[int, int, int]]) -> None:
    lane, start, length = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    line = intervals.Lanes.of(start, start + length)
    union = intervals.merge(line.at(lane, start), line.at(lane, start + length))
    for number in range(4):
        own = line.lane(union[0]) == number
        alone = intervals.merge(start[lane == number], (start + length)[lane == number])
        assert line.time(union[0][own]).tolist() == alone[0].tolist()
        assert line.time(union[1][own]).tolist() == alone[1].tolist()
        if len(alone[0]):
            ends = line.at(np.array([number] * 2), np.array([alone[0][0], alone[1][-1]]))
            covered = line.coverage_before(union, ends)
            assert int(covered[1]) - int(covered[0]) == sum((alone[1] - alone[0]).tolist())
