"""The row of each box in its lane: what runs within a box stands below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["nested_rows"]


def nested_rows(start: Ints, duration: Ints) -> Ints:
    """For boxes of one lane, in order of start with the longer first, the row: 0 where nothing else is open.

    Where boxes nest, it is how many are open around each. In a stretch where they overlap without, each takes the first
    row that is free. A box of no length takes its nanosecond.
    """
    end = start + np.maximum(duration, 1)
    if not len(start) or bool((start[1:] >= end[:-1]).all()):
        return np.zeros(len(start), dtype=np.int64)
    rows = np.arange(len(start)) - np.searchsorted(np.sort(end), start, side="right")
    for first, last in _colliding(start, end, rows):
        rows[first:last] = _first_free(start[first:last], end[first:last])
    return rows


def _colliding(start: Ints, end: Ints, rows: Ints) -> list[tuple[int, int]]:
    """Stretches of boxes, from where nothing was open to where nothing is, in which two of one row overlap."""
    order = np.argsort(rows, kind="stable")
    same = rows[order][1:] == rows[order][:-1]
    overlaps = order[1:][same & (start[order][1:] < end[order][:-1])]
    begins = np.flatnonzero(np.concatenate(([True], start[1:] >= np.maximum.accumulate(end)[:-1])))
    hit = np.unique(np.searchsorted(begins, overlaps, side="right") - 1)
    limits = np.append(begins, len(start))
    return [(int(limits[at]), int(limits[at + 1])) for at in hit]


def _first_free(start: Ints, end: Ints) -> list[int]:
    ends: list[int] = []
    rows = []
    for begin, until in zip(start.tolist(), end.tolist(), strict=True):
        row = next((row for row, taken_until in enumerate(ends) if taken_until <= begin), len(ends))
        ends[row : row + 1] = [until]
        rows.append(row)
    return rows
