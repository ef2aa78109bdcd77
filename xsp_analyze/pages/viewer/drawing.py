"""A whole trace as it is drawn: lanes, names, and every span as a box."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.kernel_classes import classes_by_name
from xsp_analyze.pages.blocks import TONES, tone
from xsp_analyze.pages.viewer.boxes import NONE, Boxes, nested_rows
from xsp_analyze.pages.viewer.lanes import lanes_of, timed_spans
from xsp_analyze.text.table import clean
from xsp_model import Level
from xsp_model.columns.arrays import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.viewer.lanes import Lane
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Positions

__all__ = ["HOST_TONES", "VIEWER_TONES", "Drawing", "drawing_of"]

HOST_TONES = tuple(str(level) for level in (Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY, Level.RUNTIME))
"""The tones of what the host did, by its level."""

VIEWER_TONES = (*TONES, *HOST_TONES)
"""What the column `tone` of boxes counts in: those of device work, of idle time, of the host."""

_OF_LEVEL = {**{level: level for level in HOST_TONES}, str(Level.APPLICATION): str(Level.MODEL)}
_OF_LEVEL[str(Level.KERNEL)] = tone("other")  # of work that no launch or name says anything of

_JOINED = tuple(slot for slot in Boxes.__slots__ if slot != "busy")  # which is the duration of single spans


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lanes of threads and streams, `names` and the boxes that index into both; `begin` and `end` of all in ns.

    `unclosed` is how many spans have no box because they were never closed.
    """

    lanes: Sequence[Lane]
    names: Sequence[str]
    boxes: Boxes
    begin: int
    end: int
    unclosed: int

    def busiest(self, limit: int) -> Drawing:
        """So many lanes in their order: the streams with most time and, as many where there are, the threads."""
        if len(self.lanes) <= limit:
            return self
        outermost = np.where(self.boxes.row == 0, self.boxes.duration, 0)
        time = np.bincount(self.boxes.lane, weights=outermost, minlength=len(self.lanes))
        fullest = np.argsort(-time, kind="stable")
        is_device = np.array([lane.side == "device" for lane in self.lanes], dtype=np.bool_)[fullest]
        rank = np.where(is_device, np.cumsum(is_device), np.cumsum(~is_device))  # among those of its side
        kept = np.sort(fullest[np.argsort(rank, kind="stable")[:limit]])
        position = np.full(len(self.lanes), NONE, dtype=np.int32)
        position[kept] = np.arange(len(kept))
        boxes = self.boxes.take(position[self.boxes.lane] != NONE)
        lanes = [self.lanes[at] for at in kept.tolist()]
        return replace(self, lanes=lanes, boxes=replace(boxes, lane=position[boxes.lane]))


def drawing_of(frames: TraceView) -> Drawing:
    """Every closed span of the trace as a box."""
    spans = timed_spans(frames)
    lanes, placed, limits = lanes_of(frames, spans)
    names, columns = _columns(frames, spans)
    of_lanes = [
        _boxes_of_lane(at, [column[placed[limits[at] : limits[at + 1]]] for column in columns])
        for at in range(len(lanes))
    ]
    del columns, placed
    depths = [int(each.row.max(initial=0)) + 1 for each in of_lanes]
    boxes = _join_boxes(of_lanes)
    begin, end = (int(boxes.start.min()), int(boxes.end.max())) if len(boxes) else (0, 0)
    unclosed = frames.own_runs.scan("spans").filter(pl.col("duration_ns").is_null()).select(pl.len()).collect().item()
    drawn = [replace(lane, rows=depth) for lane, depth in zip(lanes, depths, strict=True)]
    return Drawing(drawn, names, boxes, begin, end, unclosed)


def _columns(frames: TraceView, spans: pl.LazyFrame) -> tuple[list[str], list[Positions]]:
    """All names; and of each span start, duration, name, tone, span and layer, the small numbers in small types."""
    names, name, layer = _names(frames.trace, spans)
    tones = _tones(frames, spans)
    times = spans.select("start_ns", "duration_ns", "span_id").collect()
    start, duration, span = (column.to_numpy() for column in times)
    return names, [start, duration, name, tones, span, layer]


def _boxes_of_lane(lane: int, columns: list[Positions]) -> Boxes:
    """The boxes of one lane from its columns in order of start."""
    start, duration, name, tone_at, span, layer = _longer_first(columns)
    row = nested_rows(start, duration).astype(np.int32)
    same = np.full(len(start), lane, dtype=np.int32)
    boxes = Boxes(same, row, start, duration, duration, name, tone_at, np.zeros_like(same), span, layer)
    return boxes.take(np.argsort(row, kind="stable")) if row.any() else boxes


def _longer_first(columns: list[Positions]) -> list[Positions]:
    """The columns, with spans that begin together in order of length, the longest first: it is around the others."""
    start, duration = columns[0], columns[1]
    tie = start[1:] == start[:-1]
    if not tie.any():
        return columns
    tied = np.flatnonzero(np.concatenate((tie, [False])) | np.concatenate(([False], tie)))
    order = np.arange(len(start))
    order[tied] = tied[np.lexsort((-duration[tied], start[tied]))]
    return [column[order] for column in columns]


def _join_boxes(parts: Sequence[Boxes]) -> Boxes:
    none = np.empty(0, dtype=np.int8)
    columns = {slot: np.concatenate([none, *(getattr(part, slot) for part in parts)]) for slot in _JOINED}
    return Boxes(**columns, busy=columns["duration"])


def _names(trace: Trace, spans: pl.LazyFrame) -> tuple[list[str], Positions, Positions]:
    """All names, each once, those of layers behind; for each span its name and its layer's, NONE for none."""
    of_spans = spans.select("name", "layer_id").collect()
    name, first = numbers_by_appearance(*group_ids([of_spans["name"]]))
    layers = trace.scan("layers").select("span_id", "layer_name").collect()
    layer, first_call = numbers_by_appearance(*group_ids([layers["layer_name"]]))
    texts = of_spans["name"].gather(first).cast(pl.String).to_list()
    texts_of_layers = layers["layer_name"].gather(first_call).cast(pl.String).to_list()
    row = lookup(layers["span_id"].to_numpy(), of_spans["layer_id"].fill_null(NONE).to_numpy())
    numbers = np.append(layer + len(texts), NONE).astype(np.int32)  # the row of none is the last
    return [clean(text) for text in (*texts, *texts_of_layers)], name.astype(np.int32), numbers[row]


def _tones(frames: TraceView, spans: pl.LazyFrame) -> Positions:
    """For each span a position in VIEWER_TONES: by the class of device work, by level on the host."""
    at = {name: position for position, name in enumerate(VIEWER_TONES)}
    of_spans = spans.select("level", "is_work", "span_id").collect()
    of_levels = {level: at[name] for level, name in _OF_LEVEL.items()}
    tones = of_spans["level"].cast(pl.String).replace_strict(of_levels, return_dtype=pl.Int8).to_numpy().copy()
    device = np.flatnonzero(of_spans["is_work"].to_numpy())
    work = frames.all_activities.select("span_id", "kernel_class")
    row = lookup(work["span_id"].to_numpy(), of_spans["span_id"].gather(device).to_numpy())
    has_class = row >= 0
    tones[device[has_class]] = _of_classes(work["kernel_class"].gather(row[has_class]), at)
    others = device[~has_class]  # of runs that no number is taken from
    if len(others):
        named = spans.select(pl.col("name").alias("kernel_name"), "kind").collect()
        tones[others] = _of_classes(classes_by_name(named[others]), at)
    return tones


def _of_classes(classes: pl.Series, at: dict[str, int]) -> Positions:
    distinct = classes.cast(pl.String).unique().to_list()
    positions = {name: at[tone(name)] for name in distinct}
    return classes.cast(pl.String).replace_strict(positions, return_dtype=pl.Int8).to_numpy()
