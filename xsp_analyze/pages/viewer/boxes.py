"""Boxes on the rows of lanes: how they nest, are merged where they are short, and are packed as text."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.shell import Packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "AS_DIFFERENCES",
    "NONE",
    "Boxes",
    "encode_numbers",
    "encoded_columns",
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
    sizes = np.ones(len(zigzag), dtype=np.int64)
    for bits in range(_PAYLOAD_BITS, _WORD_BITS, _PAYLOAD_BITS):
        sizes += zigzag >= np.uint64(1 << bits)
    offsets = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), dtype=np.uint8)
    for byte_index in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > byte_index)
        payload = (zigzag[rows] >> np.uint64(_PAYLOAD_BITS * byte_index)) & np.uint64(_MORE - 1)
        out[offsets[rows] + byte_index] = payload | np.where(
            sizes[rows] > byte_index + 1, np.uint64(_MORE), np.uint64(0)
        )
    return out.tobytes()


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
        """Those that lie in the window [begin, until) with some of their time, or as a point."""
        return self.take((self.start < until) & ((self.end > begin) | (self.start >= begin)))

    def encode(self) -> dict[str, Any]:
        """As the viewer reads them: `busy` is 0 for what is one span, whose duration it is."""
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
