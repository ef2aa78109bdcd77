"""Boxes on the rows of lanes: how they nest, are merged where they are short, and are packed as text."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, fields
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.blocks import Packed
from xsp_model.columns.arrays import distinct_numbers
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "AS_DIFFERENCES",
    "NONE",
    "Boxes",
    "Level",
    "Windows",
    "encode_numbers",
    "encoded_columns",
    "encoded_size",
    "levels_of",
    "merge_boxes",
    "merged_count",
    "nested_rows",
]

# Columns of whole numbers as text that takes little room: varints, deflated, in base64.
AS_DIFFERENCES = frozenset({"start", "time", "times", "span", "lane", "from_lane", "from_time", "to_lane", "to_time"})
"""Columns that are written as the difference of each value from the one before it, the first from 0."""
_PAYLOAD_BITS = 7
_MORE = 0x80
_WORD_BITS = 64
_RAW_DEFLATE = -15  # zlib's window bits: negative stands for no header


def encode_numbers(values: Positions, *, differences: bool = False) -> Packed:
    """Zigzag LEB128 of each value (or of its difference from the one before), deflated without header, in base64."""
    numbers = np.asarray(values, dtype=np.int64)
    if differences:
        numbers = np.diff(numbers, prepend=np.int64(0))
    packer = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
    return Packed(base64.b64encode(packer.compress(_varints(numbers)) + packer.flush()).decode("ascii"))


def encoded_columns(columns: Mapping[str, Positions]) -> dict[str, Any]:
    """Columns of one length: `count` and each of them by its name."""
    count = len(next(iter(columns.values())))
    return {
        "count": count,
        "columns": {
            name: encode_numbers(values, differences=name in AS_DIFFERENCES) for name, values in columns.items()
        },
    }


def _varints(numbers: Ints) -> bytes:
    zigzag = ((numbers << 1) ^ (numbers >> (_WORD_BITS - 1))).view(np.uint64)
    length = max(-(-int(zigzag.max(initial=0)).bit_length() // _PAYLOAD_BITS), 1)
    if length == 1:
        return zigzag.astype(np.uint8).tobytes()
    columns = np.empty((len(zigzag), length), dtype=np.uint8)
    is_used = np.ones((len(zigzag), length), dtype=np.bool_)
    for at in range(length):  # a number's bytes beside each other, the last without the mark of more
        columns[:, at] = zigzag & np.uint64(_MORE - 1)
        zigzag = zigzag >> np.uint64(_PAYLOAD_BITS)
        goes_on = zigzag != 0
        columns[:, at] |= goes_on.view(np.uint8) << np.uint8(_PAYLOAD_BITS)
        if at + 1 < length:
            is_used[:, at + 1] = goes_on
    return columns[is_used].tobytes()


NONE = -1
"""Stands for no name, span or layer."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Columns of one length, in order of lane, row and start; boxes of one row do not overlap; times in ns.

    `busy` is the sum of the durations within a box, `merged` how many spans it stands for (0: it is a span itself),
    `name` and `layer` positions in the list of names, `tone` one in that of tones.
    """

    lane: Positions
    row: Positions
    start: Ints
    duration: Ints
    busy: Ints
    name: Positions
    tone: Positions
    merged: Positions
    span: Positions
    layer: Positions

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Ints:
        """When each ends."""
        return self.start + self.duration

    @property
    def counts(self) -> Positions:
        """How many spans each stands for."""
        return np.maximum(self.merged, 1)

    def take(self, rows: Positions | Bools | slice) -> Boxes:
        """Some of the boxes."""
        return Boxes(*(getattr(self, field.name)[rows] for field in fields(self)))

    def row_starts(self) -> Ints:
        """Where each row of each lane begins."""
        changes = (self.lane[1:] != self.lane[:-1]) | (self.row[1:] != self.row[:-1])
        return np.concatenate(([0], np.flatnonzero(changes) + 1)) if len(self) else np.empty(0, dtype=np.int64)

    def overlapping(self, begin: int, until: int) -> Boxes:
        """The boxes that lie in the window [begin, until) with some of their time, or as a point."""
        return self.take((self.start < until) & ((self.end > begin) | (self.start >= begin)))

    def encode(self) -> dict[str, Any]:
        """The boxes as the viewer reads them: `busy` is 0 for what is one span, whose duration it is."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return encoded_columns(columns | {"busy": np.where(self.merged > 0, self.busy, 0)})


# Boxes at a coarser resolution: what is shorter than it, and begins in one cell of time, becomes one box.


def merge_boxes(boxes: Boxes, resolution: int) -> Boxes:
    """Neighbours of one row shorter than `resolution` ns that begin in one cell of so many ns are one box.

    A box lasts from their first start to their last end and has the tone with most time within it. On each row there
    are at most two boxes a cell, and nothing is lost: counts and busy time add up to what they were.
    """
    first = _firsts(boxes, resolution)
    at = np.flatnonzero(first)
    if len(at) == len(boxes):
        return boxes
    counts = np.add.reduceat(boxes.counts, at)
    several = np.diff(np.append(at, len(boxes))) > 1
    last = np.append(at[1:], len(boxes)) - 1
    single = boxes.take(at)
    return Boxes(
        lane=single.lane,
        row=single.row,
        start=single.start,
        duration=boxes.end[last] - single.start,
        busy=np.add.reduceat(boxes.busy, at),
        name=np.where(several, NONE, single.name),
        tone=_tones(boxes, first, at, several),
        merged=np.where(several, counts, single.merged),
        span=np.where(several, NONE, single.span),
        layer=np.where(several, NONE, single.layer),
    )


def merged_count(boxes: Boxes, resolution: int) -> int:
    """How many boxes `merge_boxes` makes."""
    return int(_firsts(boxes, resolution).sum())


def _firsts(boxes: Boxes, resolution: int) -> Bools:
    """Which boxes begin a new one."""
    short = boxes.duration < resolution
    cell = boxes.start // max(resolution, 1)
    first = np.ones(len(boxes), dtype=np.bool_)
    np.logical_not(short[1:] & short[:-1] & (cell[1:] == cell[:-1]), out=first[1:])
    first[boxes.row_starts()] = True
    return first


def _tones(boxes: Boxes, first: Bools, at: Ints, several: Bools) -> Positions:
    """The tone with most time in each of the new boxes; of equal ones the first of the list of tones."""
    tones = boxes.tone[at].copy()
    mixed = np.flatnonzero(several & (np.maximum.reduceat(boxes.tone, at) != np.minimum.reduceat(boxes.tone, at)))
    if not len(mixed):
        return tones
    into = np.cumsum(first) - 1
    inside = np.isin(into, mixed) if len(mixed) < len(at) else np.ones(len(into), dtype=np.bool_)
    count = int(boxes.tone.max()) + 1
    box_index = np.searchsorted(mixed, into[inside])
    cells = box_index * count + boxes.tone[inside]
    time = np.bincount(cells, weights=boxes.busy[inside], minlength=len(mixed) * count)
    tones[mixed] = time.reshape(len(mixed), count).argmax(axis=1)
    return tones


# The row of each box in its lane: what runs within a box stands below it.


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
    hit = distinct_numbers(np.searchsorted(begins, overlaps, side="right") - 1)
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


# Levels of detail of a page: exact around where it opens, merged beyond, in as many bytes as a page has for them.

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
        """The level as the viewer reads it."""
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
