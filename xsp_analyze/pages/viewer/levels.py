"""Levels of detail of a page: exact around where it opens, merged beyond, in as many bytes as a page has for them."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.viewer.boxes import merge_boxes, merged_count
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.pages.viewer.boxes import Boxes
    from xsp_model.columns.arrays import Ints

__all__ = ["Level", "Windows", "encoded_size", "levels_of"]

_EXACT_SHARE, _BETWEEN_SHARE, _WHOLE_SHARE = 0.5, 0.25, 0.25
_MIN_BYTES = 2  # a box, encoded: of real traces it takes more
_USUAL_BYTES = 4
_BETWEEN = 4  # how much finer than the level of everything is the one between it and exact
_FINEST = 1_024  # ns: the level of everything is merged no less
_TRIALS = 6
_FULL, _AIM = 0.8, 0.9  # of a window's bytes: from where on it is wide enough, and what the next trial aims at
_WIDER = 1.5  # by how much the level between must reach further to be worth its bytes
_Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Level:
    """What overlaps [begin, end), merged below `resolution` ns; 0: every span as it is."""

    resolution: int
    begin: int
    end: int
    boxes: Boxes

    def encode(self) -> dict[str, Any]:
        """As the viewer reads it."""
        return {"resolution": self.resolution, "from": self.begin, "to": self.end, "boxes": self.boxes.encode()}


def encoded_size(boxes: Boxes) -> int:
    """How many characters the boxes take in a page."""
    return sum(map(len, boxes.encode()["columns"].values()))


def levels_of(boxes: Boxes, opened: _Window, budget: int) -> list[Level]:
    """Levels, the finest first, that take about `budget` characters; the last covers everything.

    Where every span fits there is one level. Else spans are exact around the window that the page opens at, as far as
    half of the budget reaches; a coarser level may reach further around it.
    """
    extent = (int(boxes.start.min()), int(boxes.end.max()) + 1) if len(boxes) else opened
    if len(boxes) * _MIN_BYTES <= budget and encoded_size(boxes) <= budget:
        return [Level(0, *extent, boxes)]
    exact = _widest(boxes, 0, opened, extent, int(budget * _EXACT_SHARE))
    complete = _complete(boxes, extent, int(budget * _WHOLE_SHARE))
    between = _widest(boxes, complete.resolution // _BETWEEN, opened, extent, int(budget * _BETWEEN_SHARE))
    reaches_further = between.end - between.begin > _WIDER * (exact.end - exact.begin)
    return [exact, between, complete] if reaches_further else [exact, complete]


def _complete(boxes: Boxes, extent: _Window, budget: int) -> Level:
    """Everything at the finest resolution, a power of two, that fits."""
    resolution = _FINEST
    while merged_count(boxes, resolution) * _USUAL_BYTES > budget and resolution < 2 * (extent[1] - extent[0]):
        resolution *= 2
    level = merge_boxes(boxes, resolution)
    while encoded_size(level) > budget and resolution < 2 * (extent[1] - extent[0]):
        resolution *= 2
        level = merge_boxes(boxes, resolution)
    return Level(resolution, *extent, level)


def _widest(boxes: Boxes, resolution: int, opened: _Window, extent: _Window, budget: int) -> Level:
    """The widest window around the one opened whose boxes, merged, fit; it is narrower where that does not."""
    coarse = merge_boxes(boxes, resolution) if resolution else boxes
    starts, ends = np.sort(coarse.start), np.sort(coarse.end)
    limit = float(budget) / _USUAL_BYTES
    best: Level | None = None
    for _ in range(_TRIALS):
        begin, end = _widest_window(opened, extent, lambda window: _count(starts, ends, window) <= limit)  # noqa: B023
        part = boxes.overlapping(begin, end)
        level = Level(resolution, begin, end, merge_boxes(part, resolution) if resolution else part)
        size = encoded_size(level.boxes)
        if size <= budget and (best is None or len(best.boxes) < len(level.boxes)):
            best = level
        if size <= budget and (size >= _FULL * budget or (begin, end) == extent):
            break
        limit = max(len(level.boxes) * _AIM * budget / max(size, 1), 1)
    return best or level


def _count(starts: Ints, ends: Ints, window: _Window) -> int:
    return int(np.searchsorted(starts, window[1]) - np.searchsorted(ends, window[0], side="right"))


def _widest_window(opened: _Window, extent: _Window, fits: Callable[[_Window], bool]) -> _Window:
    """The window wider (or narrower) than the one opened by as much on either side as still fits, within the extent."""
    middle = (opened[0] + opened[1]) // 2
    narrowest, widest = -((opened[1] - opened[0]) // 2), max(opened[0] - extent[0], extent[1] - opened[1], 0)

    def window(margin: int) -> _Window:
        begin, end = min(opened[0] - margin, middle), max(opened[1] + margin, middle + 1)
        return max(begin, extent[0]), min(end, extent[1])

    if fits(window(widest)):
        return extent
    while widest - narrowest > 1:
        margin = (narrowest + widest) // 2
        narrowest, widest = (margin, widest) if fits(window(margin)) else (narrowest, margin)
    return window(narrowest)


# Boxes of any window of time at any resolution, found and merged when asked for.

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
