"""Which row of its lane a box stands on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.pages.viewer.boxes import nested_rows

_BOXES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=30)


def _rows(*boxes: tuple[int, int]) -> list[int]:
    """Rows of boxes given as start and end."""
    start, end = (np.array(values, dtype=np.int64) for values in zip(*boxes, strict=True))
    return [int(row) for row in nested_rows(start, end - start)]


def test_what_runs_within_stands_below_and_what_follows_beside() -> None:
    assert _rows((0, 100), (10, 40), (10, 20), (40, 60), (100, 120)) == [0, 1, 2, 1, 0]


def test_one_after_the_other_needs_one_row() -> None:
    assert _rows((0, 10), (10, 20), (25, 30)) == [0, 0, 0]


def test_overlapping_work_takes_the_first_row_that_is_free() -> None:
    # 0-10, 5-15 and 12-20 are a chain: the third fits behind the first.
    assert _rows((0, 10), (5, 15), (12, 20), (17, 25)) == [0, 1, 0, 1]


def test_a_stretch_that_overlaps_does_not_disturb_what_nests_elsewhere() -> None:
    assert _rows((0, 10), (5, 15), (8, 12), (20, 40), (22, 30), (23, 24)) == [0, 1, 2, 0, 1, 2]


def test_a_box_of_no_length_takes_its_nanosecond() -> None:
    assert _rows((0, 10), (3, 3), (3, 3), (4, 4)) == [0, 1, 2, 1]


@given(_BOXES)
def test_no_two_boxes_of_a_row_overlap(boxes: list[tuple[int, int]]) -> None:
    ordered = sorted(boxes, key=lambda box: (box[0], -box[1]))
    if not ordered:
        return
    rows = _rows(*((start, start + length) for start, length in ordered))
    for row in set(rows):
        own = [box for box, at in zip(ordered, rows, strict=True) if at == row]
        assert all(start + max(length, 1) <= later[0] for (start, length), later in pairwise(own))
