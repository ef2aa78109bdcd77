"""Boxes on the rows of lanes: spans, and neighbours merged to one box where they are too short to be drawn apart."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.pages.viewer.columns import encoded_columns

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["NONE", "Boxes"]

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
