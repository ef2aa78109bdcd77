"""Boxes at a coarser resolution: what is shorter than it, and begins in one cell of time, becomes one box."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.pages.viewer.boxes import NONE, Boxes

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["merge_boxes", "merged_count"]


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
