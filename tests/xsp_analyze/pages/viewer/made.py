"""Boxes by hand and at random."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from xsp_analyze.pages.viewer.boxes import Boxes

__all__ = ["any_boxes", "boxes_of"]


def boxes_of(*rows: tuple[int, int, int, int, int]) -> Boxes:
    """Single spans from lane, row, start, duration and tone, in that order; names and spans are their numbers."""
    lane, row, start, duration, tone = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    number = np.arange(len(rows))
    return Boxes(lane, row, start, duration, duration, number, tone, np.zeros_like(number), number, number)


@st.composite
def any_boxes(draw: st.DrawFn) -> Boxes:
    """A few lanes and rows of boxes that do not overlap within their row."""
    rows = []
    for lane in range(draw(st.integers(1, 2))):
        for row in range(draw(st.integers(1, 2))):
            time = 0
            for gap, length, tone in draw(
                st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=25)
            ):
                rows.append((lane, row, time + gap, length, tone))
                time += gap + length
    return boxes_of(*rows)
