"""Names beside the largest points of a roofline, each where no other text stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

    from xsp_analyze.figure.room import Room

__all__ = ["point_labels"]

_MAX_LABELS = 5
_FONT = 5.0  # points
_AWAY = 5.0  # points from the middle of a point


def point_labels(axes: Axes, points: Iterable[Mapping[str, Any]], room: Room) -> None:
    """Writes the names (`label`) of the points with most time, right of them or left."""
    named = sorted((p for p in points if p.get("label")), key=lambda p: -(p["time"] or 0))
    written = 0
    for point in named[: 3 * _MAX_LABELS]:
        at = (point["x"], point["y"])
        offset = room.fit(point["label"], _FONT, at, ((_AWAY, 0.0, False), (-_AWAY, 0.0, True)))
        if offset is None:
            continue
        right, up, ends = offset
        axes.annotate(
            point["label"], at, xytext=(right, up), fontsize=_FONT, textcoords="offset points",
            ha="right" if ends else "left", va="center", zorder=5,
        )  # fmt: skip
        written += 1
        if written == _MAX_LABELS:
            return
