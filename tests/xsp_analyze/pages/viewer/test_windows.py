"""Windows of boxes at any resolution, as `xsp view` answers them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.xsp_analyze.pages.viewer.made import any_boxes, boxes_of
from xsp_analyze.pages.viewer.boxes import Boxes, Windows
from xsp_model.limits import override_limits


@given(any_boxes(), st.integers(-5, 200), st.integers(1, 100))
def test_an_exact_window_is_what_overlaps_it(boxes: Boxes, begin: int, length: int) -> None:
    inside = Windows(boxes).exact(begin, begin + length)
    assert inside.span.tolist() == np.flatnonzero((boxes.start < begin + length) & (boxes.end > begin)).tolist()


def test_a_point_at_the_begin_lies_in_the_window_and_what_ends_there_does_not() -> None:
    boxes = boxes_of((0, 0, 0, 10, 0), (0, 0, 10, 0, 0), (0, 0, 11, 1, 0))
    assert Windows(boxes).exact(10, 11).span.tolist() == [1]


@given(any_boxes(), st.integers(0, 200), st.integers(1, 100), st.integers(0, 200))
def test_a_window_loses_nothing_at_any_resolution(boxes: Boxes, begin: int, length: int, resolution: int) -> None:
    level = Windows(boxes).level(begin, begin + length, resolution)
    assert level.begin <= begin
    assert level.end >= begin + length
    assert level.resolution <= max(resolution, 0)
    inside = Windows(boxes).exact(level.begin, level.end)
    assert level.boxes.counts.sum() == len(inside)
    assert level.boxes.busy.sum() == inside.busy.sum()


@given(any_boxes(), st.integers(0, 200), st.integers(1, 100), st.sampled_from([4, 16]))
def test_what_is_merged_once_for_all_windows_holds_each(boxes: Boxes, begin: int, length: int, resolution: int) -> None:
    with override_limits(viewer_slice_max_boxes=0):
        level = Windows(boxes).level(begin, begin + length, resolution)
    exact = Windows(boxes).exact(begin, begin + length)
    assert level.boxes.counts.sum() >= len(exact)
    assert set(exact.lane.tolist()) <= set(level.boxes.lane.tolist())


def test_an_answer_is_bounded() -> None:
    boxes = boxes_of(*((0, 0, 10 * n, 5, 0) for n in range(400)))
    with override_limits(viewer_answer_max_boxes=20):
        windows = Windows(boxes)
    level = windows.level(0, 4_000, 1)  # outside, as a server's threads are
    assert len(level.boxes) <= 20
    assert level.boxes.counts.sum() == 400
    assert level.resolution > 1


def test_a_trace_without_boxes_has_empty_windows() -> None:
    none = np.empty(0, dtype=np.int64)
    assert len(Windows(Boxes(*(none for _ in Boxes.__slots__))).level(0, 10, 1).boxes) == 0
