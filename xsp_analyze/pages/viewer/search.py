"""Spans whose name holds a text, in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xsp_analyze.pages.viewer.drawing import Drawing

__all__ = ["matching_spans"]

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
