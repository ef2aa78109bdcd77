"""Arrows from the call that launched work to the work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.pages.viewer.boxes import encoded_columns
from xsp_model import Level

if TYPE_CHECKING:
    from xsp_analyze.pages.viewer.drawing import Drawing
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["Launches", "launches_of"]


@dataclass(frozen=True, slots=True)
class Launches:
    """Columns of one length, in order of when the work began: where and when the call began, and the work, its span."""

    from_lane: Ints
    from_row: Ints
    from_time: Ints
    to_lane: Ints
    to_row: Ints
    to_time: Ints
    span: Ints

    def __len__(self) -> int:
        return len(self.span)

    def take(self, rows: Ints | Bools) -> Launches:
        """Some of them."""
        return Launches(*(getattr(self, field.name)[rows] for field in fields(self)))

    def overlapping(self, begin: int, until: int) -> Launches:
        """The launches under way at some time of the window."""
        earlier, later = np.minimum(self.from_time, self.to_time), np.maximum(self.from_time, self.to_time)
        return self.take((earlier < until) & (later >= begin))

    def nearest(self, begin: int, until: int, limit: int) -> Launches:
        """Of more than `limit` those whose work begins nearest to the window."""
        if len(self) <= limit:
            return self
        distance = np.maximum(np.maximum(begin - self.to_time, self.to_time - until), 0)
        return self.take(np.sort(np.argsort(distance, kind="stable")[:limit]))

    def encode(self) -> dict[str, Any]:
        """The columns as the viewer reads them."""
        return encoded_columns({field.name: getattr(self, field.name) for field in fields(self)})


def launches_of(trace: Trace, drawing: Drawing) -> Launches:
    """One for each piece of device work whose runtime call is in the trace, as correlated when the trace was linked."""
    boxes = drawing.boxes
    is_device = np.array([lane.side == "device" for lane in drawing.lanes], dtype=np.bool_)
    work = np.flatnonzero(is_device[boxes.lane]) if len(boxes) else np.empty(0, dtype=np.int64)
    work = work[np.argsort(boxes.start[work], kind="stable")]
    parent, is_call = _parents(trace)
    box_of = np.full(len(parent), -1, dtype=np.int64)
    box_of[boxes.span] = np.arange(len(boxes))
    launched_by = parent[boxes.span[work]]
    call = np.where((launched_by >= 0) & is_call[launched_by], box_of[launched_by], -1)
    to, by = work[call >= 0], call[call >= 0]
    return Launches(
        from_lane=boxes.lane[by],
        from_row=boxes.row[by],
        from_time=boxes.start[by],
        to_lane=boxes.lane[to],
        to_row=boxes.row[to],
        to_time=boxes.start[to],
        span=boxes.span[to],
    )


def _parents(trace: Trace) -> tuple[Ints, Bools]:
    """For each span its parent, -1 for none, and whether it is itself a call of the runtime."""
    is_call = (pl.col("level") == str(Level.RUNTIME)).alias("is_call")
    spans = trace.scan("spans").select(pl.col("parent_id").fill_null(-1), is_call).collect()
    return spans["parent_id"].to_numpy(), spans["is_call"].to_numpy()
