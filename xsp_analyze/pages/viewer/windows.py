"""Boxes of any window of time at any resolution, found and merged when asked for."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.pages.viewer.levels import Level
from xsp_analyze.pages.viewer.merging import merge_boxes
from xsp_model.limits import limits

if TYPE_CHECKING:
    from xsp_analyze.pages.viewer.boxes import Boxes
    from xsp_model.arrays import Ints

__all__ = ["Windows"]

_MAX_CELLS = 16_384  # of a window: finer than any screen


class Windows:
    """The boxes of a trace, for questions from several threads."""

    def __init__(self, boxes: Boxes) -> None:
        self._exact = _Rows(boxes)
        self._merged: dict[int, _Rows] = {}
        self._lock = Lock()
        self._limits = limits()  # of whoever opened the trace: threads that ask have the usual ones

    def exact(self, begin: int, until: int) -> Boxes:
        """Every span that overlaps the window, as it is."""
        return self._exact.boxes.take(self._exact.overlapping(begin, until))

    def level(self, begin: int, until: int, resolution: int) -> Level:
        """The window, merged below `resolution` ns or, where that were too many boxes, below more.

        Resolutions are powers of two; below 2 ns nothing is merged.
        """
        max_boxes = self._limits.viewer_answer_max_boxes
        if self._exact.count(begin, until) > max_boxes:
            resolution = max(resolution, -(-(until - begin) // _MAX_CELLS))
        power = 1 << max(resolution.bit_length() - 1, 0)
        level = self._level(begin, until, power)
        while len(level.boxes) > max_boxes and power < 2 * (until - begin):
            power *= 2
            level = self._level(begin, until, power)
        return level

    def _level(self, begin: int, until: int, power: int) -> Level:
        if power == 1:
            rows = self._exact.overlapping(begin, until)
            if len(rows) <= self._limits.viewer_answer_max_boxes:
                return Level(0, begin, until, self._exact.boxes.take(rows))
            return Level(2, begin, until, merge_boxes(self._exact.boxes.take(rows), 2))
        begin, until = begin // power * power, -(-until // power) * power  # no cell is cut
        if self._exact.count(begin, until) <= self._limits.viewer_slice_max_boxes:
            return Level(power, begin, until, merge_boxes(self.exact(begin, until), power))
        complete = self._complete(power)
        return Level(power, begin, until, complete.boxes.take(complete.overlapping(begin, until)))

    def _complete(self, power: int) -> _Rows:
        with self._lock:
            if power not in self._merged:
                self._merged[power] = _Rows(merge_boxes(self._exact.boxes, power))
            return self._merged[power]


class _Rows:
    """Boxes with a key for each start and end that grows from row to row, so that windows are found in all at once."""

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        starts = boxes.row_starts()
        self._count = len(starts)
        if not self._count:
            return
        self._first = int(boxes.start.min())
        self._size = int(boxes.end.max()) - self._first + 2
        base = np.repeat(np.arange(self._count), np.diff(np.append(starts, len(boxes)))) * self._size - self._first
        self._starts, self._ends = boxes.start + base, boxes.end + base

    def overlapping(self, begin: int, until: int) -> Ints:
        """The boxes that overlap the window, in order."""
        first, last = self._limits(begin, until)
        counts = np.maximum(last - first, 0)
        offsets = np.cumsum(counts) - counts
        return np.repeat(first - offsets, counts) + np.arange(int(counts.sum()))

    def count(self, begin: int, until: int) -> int:
        """How many they are."""
        first, last = self._limits(begin, until)
        return int(np.maximum(last - first, 0).sum())

    def _limits(self, begin: int, until: int) -> tuple[Ints, Ints]:
        if not self._count:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        rows = np.arange(self._count) * self._size
        begin, until = (min(max(time - self._first, 0), self._size - 1) for time in (begin, until))
        # A point at the window's begin lies in it; what ends there does not.
        first = np.minimum(
            np.searchsorted(self._ends, rows + begin, side="right"), np.searchsorted(self._starts, rows + begin)
        )
        return first, np.searchsorted(self._starts, rows + until)
