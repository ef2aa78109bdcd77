"""What ran in a range of time: by name, by class, by device, exact to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.viewer.drawing import VIEWER_TONES
from xsp_model.columns.intervals import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.viewer.block import Viewed
    from xsp_analyze.pages.viewer.boxes import Boxes
    from xsp_analyze.pages.viewer.drawing import Drawing
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["matching_spans", "range_statistics"]

_MAX_NAMES = 1_000  # of an answer


def range_statistics(viewed_trace: Viewed, inside: Boxes, begin: int, until: int) -> dict[str, Any]:
    """Sums over what overlaps [begin, until), cut to it: device work by name and by class, calls of the host, devices.

    `inside` are the spans that overlap it. Of the host each call counts with all that ran within it. A device is busy
    while at least one of its streams works, and idle (as B03 says) for the rest of its run.
    """
    time = np.minimum(inside.end, until) - np.maximum(inside.start, begin)
    side = np.array([lane.side == "device" for lane in viewed_trace.drawing.lanes], dtype=np.bool_)
    is_device = side[inside.lane]
    names = viewed_trace.drawing.names
    return {
        "exact": True,
        "by_name": _by_name(names, inside, time, is_device),
        "by_class": _by_class(inside, time, is_device),
        "host": _by_name(names, inside, time, ~is_device),
        "devices": _devices(viewed_trace, inside, begin, until),
    }


def _by_name(names: Sequence[str], inside: Boxes, time: Ints, rows: Bools) -> list[dict[str, Any]]:
    tones = len(VIEWER_TONES)
    keys, at = np.unique(inside.name[rows] * tones + inside.tone[rows], return_inverse=True)
    sums, counts = _sums(at, time[rows], len(keys)), np.bincount(at, minlength=len(keys))
    order = np.lexsort((keys, -sums))[:_MAX_NAMES]
    return [
        {
            "name": names[int(keys[i]) // tones],
            "tone": VIEWER_TONES[int(keys[i]) % tones],
            "count": int(counts[i]),
            "duration": int(sums[i]),
        }
        for i in order
    ]


def _by_class(inside: Boxes, time: Ints, rows: Bools) -> list[dict[str, Any]]:
    tone = inside.tone[rows]
    sums, counts = _sums(tone, time[rows], len(VIEWER_TONES)), np.bincount(tone, minlength=len(VIEWER_TONES))
    order = np.lexsort((np.arange(len(sums)), -sums))
    rows_of = [(VIEWER_TONES[at], int(counts[at]), int(sums[at])) for at in order if counts[at]]
    return [{"name": name, "tone": name, "count": count, "duration": total} for name, count, total in rows_of]


def _sums(at: Ints, time: Ints, size: int) -> Ints:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, at, time)
    return sums


def _devices(viewed_trace: Viewed, inside: Boxes, begin: int, until: int) -> list[dict[str, Any]]:
    gaps = viewed_trace.gaps.overlapping(begin, until)
    length = np.minimum(gaps.start + gaps.duration, until) - np.maximum(gaps.start, begin)
    lanes: dict[tuple[int, int | None], list[int]] = {}
    for at, lane in enumerate(viewed_trace.drawing.lanes):
        if lane.side == "device":
            lanes.setdefault((lane.run, lane.device), []).append(at)
    return [
        {
            "title": viewed_trace.drawing.lanes[numbers[0]].group,
            "busy": _busy(inside.take(np.isin(inside.lane, numbers)), begin, until),
            "idle": int(length[gaps.lane == numbers[0]].sum()) if numbers[0] in viewed_trace.idle_known else None,
            "gaps": _by_cause(gaps.cause[gaps.lane == numbers[0]], length[gaps.lane == numbers[0]]),
        }
        for numbers in lanes.values()
    ]


def _busy(work: Boxes, begin: int, until: int) -> int:
    first, last = merge(np.maximum(work.start, begin), np.minimum(work.end, until))
    return int((last - first).sum())


def _by_cause(cause: Ints, length: Ints) -> list[dict[str, int]]:
    sums = [(int(each), int((cause == each).sum()), int(length[cause == each].sum())) for each in np.unique(cause)]
    return [{"cause": each, "count": count, "duration": total} for each, count, total in sorted(sums, key=_by_time)]


def _by_time(row: tuple[int, int, int]) -> tuple[int, int]:
    return -row[2], row[0]


# Spans whose name holds a text, in order of time.

_MAX_RESULTS = 20_000


def matching_spans(drawing: Drawing, text: str) -> dict[str, Any]:
    """`results` (the first of them, see the bound) and the `count` of all; upper and lower case are alike."""
    part = text.strip().lower()
    matches = np.array([bool(part) and part in name.lower() for name in drawing.names], dtype=np.bool_)
    boxes = drawing.boxes
    rows = np.flatnonzero(matches[boxes.name]) if len(boxes) else np.empty(0, dtype=np.int64)
    kept = boxes.take(rows[np.argsort(boxes.start[rows], kind="stable")][:_MAX_RESULTS])
    columns = ("lane", "row", "start", "duration", "name", "tone", "span", "layer")
    lists = [getattr(kept, name).tolist() for name in columns]
    return {
        "results": [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)],
        "count": len(rows),
    }
