"""Levels of detail of a page: what each holds, and how much room they take."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.xsp_analyze.pages.viewer.made import any_boxes
from xsp_analyze.pages.viewer.boxes import Boxes, encoded_size, levels_of


def _many(count: int) -> Boxes:
    """Boxes of random lengths, some 1,000 ns apart."""
    random = np.random.default_rng(7)
    start = np.arange(count) * 1_000 + random.integers(0, 400, count)
    duration = random.integers(1, 500, count)
    zero = np.zeros(count, dtype=np.int64)
    return Boxes(
        zero, zero, start, duration, duration, random.integers(0, 300, count), random.integers(0, 9, count), zero,
        np.arange(count), zero,
    )  # fmt: skip


@given(any_boxes(), st.integers(0, 100), st.integers(1, 60), st.sampled_from([100, 400, 1_000, 100_000]))
def test_every_level_holds_all_of_its_window(boxes: Boxes, begin: int, length: int, budget: int) -> None:
    levels = levels_of(boxes, (begin, begin + length), budget)
    for level in levels:
        inside = (boxes.start < level.end) & (boxes.end > level.begin)
        assert level.boxes.counts.sum() == inside.sum()
        assert level.boxes.busy.sum() == boxes.duration[inside].sum()
    assert levels[-1].boxes.counts.sum() == len(boxes)
    assert [level.resolution for level in levels] == sorted({level.resolution for level in levels})


def test_what_fits_is_one_exact_level() -> None:
    boxes = _many(2_000)
    (level,) = levels_of(boxes, (0, 10_000), 1_000_000)
    assert (level.resolution, level.begin, level.end) == (0, int(boxes.start[0]), int(boxes.end[-1]) + 1)


def test_levels_of_more_take_no_more_than_they_may_and_are_exact_where_the_page_opens() -> None:
    boxes = _many(60_000)
    opened = (30_000_000, 30_500_000)
    levels = levels_of(boxes, opened, 100_000)
    assert sum(encoded_size(level.boxes) for level in levels) <= 100_000
    exact, *_, complete = levels
    assert exact.resolution == 0
    assert exact.begin <= opened[0]
    assert exact.end >= opened[1]
    assert encoded_size(exact.boxes) >= 30_000
    assert (complete.begin, complete.end) == (int(boxes.start[0]), int(boxes.end[-1]) + 1)
    assert len(levels) > 2
    assert all(a.begin >= b.begin and a.end <= b.end for a, b in pairwise(levels))


def test_a_step_too_large_for_the_page_is_exact_in_its_middle() -> None:
    boxes = _many(60_000)
    exact = levels_of(boxes, (0, 60_000_000), 100_000)[0]
    assert exact.resolution == 0
    assert exact.begin < 30_000_000 < exact.end
    assert exact.end - exact.begin < 60_000_000
