"""Icicles: a tree of time, every node as wide as its time, those within it beneath."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.text.names import cut
from xsp_analyze.text.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["icicle", "layout"]

_MAX_DEPTH = 7
_MIN_SHARE = 0.001  # of the whole: narrower than a hair
_CHARACTERS_PER_INCH = 17
_SHADES = ("#08306B", "#0F4F8F", "#2171B5", "#4292C6", "#6BAED6", "#9ECAE1", "#C6DBEF", "#DEEBF7")


def icicle(axes: Axes, block: Mapping[str, Any]) -> None:
    """Draws the page's block of a tree: the whole above, at most eight rows."""
    depths, lefts = layout(block["parent"], block["time"])
    total = block["time"][0]
    deepest = 0
    inches = axes.get_figure().get_size_inches()[0]
    for node, time in enumerate(block["time"]):
        if depths[node] > _MAX_DEPTH or time < _MIN_SHARE * total:
            continue
        deepest = max(deepest, depths[node])
        _node(axes, block["names"][block["name"][node]], (depths[node], lefts[node] / total, time / total), inches)
    axes.set_xlim(0, 1)
    axes.set_ylim(deepest + 1, 0)
    axes.set_yticks([])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
    axes.set_xlabel(f"device time (% of {duration(total)})")
    axes.spines["left"].set_visible(False)


def layout(parent: Sequence[int], time: Sequence[int]) -> tuple[list[int], list[int]]:
    """The depth of every node and where it begins, in the unit of its time; a parent stands before its children."""
    depths, lefts, filled = [0] * len(parent), [0] * len(parent), [0] * len(parent)
    for node, above in enumerate(parent):
        if above >= 0:
            depths[node] = depths[above] + 1
            lefts[node] = lefts[above] + filled[above]
            filled[above] += time[node]
    return depths, lefts


def _node(axes: Axes, name: str, rectangle: tuple[int, float, float], inches: float) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 (only for figures)

    depth, left, width = rectangle
    shade = _SHADES[depth % len(_SHADES)]
    axes.add_patch(Rectangle((left, depth), width, 1, facecolor=shade, edgecolor="white", linewidth=0.5))
    characters = int(width * inches * _CHARACTERS_PER_INCH)
    if characters > 2:  # noqa: PLR2004 (a name of two letters says nothing)
        axes.text(
            left + width / 2, depth + 0.5, cut(name, characters), fontsize=5.5, ha="center", va="center",
            color="white" if depth < len(_SHADES) // 2 else "black", clip_on=True,
        )  # fmt: skip
