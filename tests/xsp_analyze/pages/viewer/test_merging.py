"""Boxes too short to be drawn apart become one, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.xsp_analyze.pages.viewer.made import any_boxes, boxes_of
from xsp_analyze.pages.viewer.boxes import merge_boxes, merged_count

if TYPE_CHECKING:
    from xsp_analyze.pages.viewer.boxes import Boxes

_RESOLUTIONS = st.sampled_from([2, 4, 8, 16, 64, 1024])


def test_short_neighbours_of_one_cell_are_one_box() -> None:
    # Cells of 10 ns; in the first 2 + 3 ns of tone 1 and 4 ns of tone 2, the box of 12 ns stays itself.
    boxes = boxes_of((0, 0, 0, 2, 1), (0, 0, 3, 4, 2), (0, 0, 8, 3, 1), (0, 0, 11, 12, 3), (0, 0, 25, 1, 4))
    coarse = merge_boxes(boxes, 10)
    assert list(zip(coarse.start.tolist(), coarse.duration.tolist(), coarse.busy.tolist(), strict=True)) == [
        (0, 11, 9), (11, 12, 12), (25, 1, 1),
    ]  # fmt: skip
    assert coarse.merged.tolist() == [3, 0, 0]
    assert coarse.tone.tolist() == [1, 3, 4]
    assert coarse.name.tolist() == [-1, 3, 4]
    assert coarse.span.tolist() == [-1, 3, 4]


def test_rows_and_lanes_stay_apart() -> None:
    boxes = boxes_of((0, 0, 0, 1, 0), (0, 1, 0, 1, 0), (1, 0, 0, 1, 0))
    assert merge_boxes(boxes, 100).merged.tolist() == [0, 0, 0]


@given(any_boxes(), _RESOLUTIONS)
def test_counts_and_busy_time_add_up_at_every_resolution(boxes: Boxes, resolution: int) -> None:
    coarse = merge_boxes(boxes, resolution)
    assert coarse.counts.sum() == len(boxes)
    assert coarse.busy.sum() == boxes.duration.sum()
    assert merged_count(boxes, resolution) == len(coarse)


@given(any_boxes(), _RESOLUTIONS)
def test_a_row_has_at_most_two_boxes_a_cell_which_do_not_overlap(boxes: Boxes, resolution: int) -> None:
    coarse = merge_boxes(boxes, resolution)
    cells = list(zip(coarse.lane.tolist(), coarse.row.tolist(), (coarse.start // resolution).tolist(), strict=True))
    assert all(cells.count(cell) <= 2 for cell in set(cells))
    for first, second in pairwise(range(len(coarse))):
        if (coarse.lane[first], coarse.row[first]) == (coarse.lane[second], coarse.row[second]):
            assert coarse.end[first] <= coarse.start[second]


@given(any_boxes(), _RESOLUTIONS)
def test_a_merged_box_has_the_tone_with_most_time_in_it(boxes: Boxes, resolution: int) -> None:
    coarse = merge_boxes(boxes, resolution)
    for at in range(len(coarse)):
        inside = (
            (boxes.lane == coarse.lane[at])
            & (boxes.row == coarse.row[at])
            & (boxes.start >= coarse.start[at])
            & (boxes.end <= coarse.end[at])
        )
        sums = {tone: int(boxes.busy[inside & (boxes.tone == tone)].sum()) for tone in range(4)}
        assert sums[int(coarse.tone[at])] == max(sums.values())
