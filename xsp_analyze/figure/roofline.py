"""Rooflines: two logarithmic axes, a roof with its ridge for every precision, points as large as their time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xsp_analyze.figure.look import MARKERS, PALETTE
from xsp_analyze.text.units import engineering

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["Room", "point_labels", "roofline"]

# Names beside the largest points of a roofline, each where no other text stands.

_MAX_LABELS = 5
_LABEL_FONT = 5.0  # points
_AWAY = 5.0  # points from the middle of a point


def point_labels(axes: Axes, points: Iterable[Mapping[str, Any]], room: Room) -> None:
    """Writes the names (`label`) of the points with most time, right of them or left."""
    named = sorted((p for p in points if p.get("label")), key=lambda p: -(p["time"] or 0))
    written = 0
    for point in named[: 3 * _MAX_LABELS]:
        at = (point["x"], point["y"])
        offset = room.fit(point["label"], _LABEL_FONT, at, ((_AWAY, 0.0, False), (-_AWAY, 0.0, True)))
        if offset is None:
            continue
        right, up, ends = offset
        axes.annotate(
            point["label"], at, xytext=(right, up), fontsize=_LABEL_FONT, textcoords="offset points",
            ha="right" if ends else "left", va="center", zorder=5,
        )  # fmt: skip
        written += 1
        if written == _MAX_LABELS:
            return


# Where in a roofline text may stand: each label in the first of its positions that no other label takes.

_POINTS_PER_INCH = 72
_WIDE = 0.52  # of a character, in the size of its font
_Box = tuple[float, float, float, float]


class Room:
    """The logarithmic axes in points, as the figure is shaped before its layout, and what is written on them."""

    def __init__(self, axes: Axes) -> None:
        (self._left, right), (self._low, high) = axes.get_xlim(), axes.get_ylim()
        box, size = axes.get_position(), axes.get_figure().get_size_inches()
        self.wide = box.width * size[0] * _POINTS_PER_INCH
        self._across = self.wide / math.log10(right / self._left)
        self._up = box.height * size[1] * _POINTS_PER_INCH / math.log10(high / self._low)
        self._taken: list[_Box] = []

    def fit(
        self, text: str, font: float, at: tuple[float, float], offsets: Iterable[tuple[float, float, bool]]
    ) -> tuple[float, float, bool] | None:
        """The first of the offsets (points to the right, up, and whether the text ends there) that is free, else None.

        `at` is in data; text stands with its middle at its height.
        """
        x = self._across * math.log10(at[0] / self._left)
        y = self._up * math.log10(at[1] / self._low)
        length = len(text) * font * _WIDE
        for right, up, ends in offsets:
            start = x + right - (length if ends else 0)
            box = (start, y + up - font / 2, start + length, y + up + font / 2)
            if box[0] >= 0 and box[2] <= self.wide and not any(_overlap(box, other) for other in self._taken):
                self._taken.append(box)
                return right, up, ends
        return None


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


_MIN_AREA, _MAX_AREA = 6.0, 160.0  # square points
_NO_ROOF = "#777777"
_RIDGE_WIDTH = 1.5  # on the axis: ridges that differ by less have labels that overlap
_FONT = 6.0  # points
_STAGGER = 6.0  # on the axis, between labels of slopes that lie side by side


def roofline(axes: Axes, block: Mapping[str, Any]) -> None:
    """Draws the page's block of a roofline: points, roofs with ridges, and the model as a star.

    Colours tell precisions apart; of several traces (`traces`) they tell these apart, and marks the precisions.
    """
    points, models, roofs = block["points"], block["models"], block["roofs"]
    left, right, low, high = _window([*points, *models], roofs)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    room = Room(axes)
    _roofs(axes, block, (left, right, low), room)
    _all_points(axes, points, block)
    _models(axes, models, _meaning_of_colours(block))
    if "traces" not in block:
        point_labels(axes, points, room)
    _ticks(axes)
    basis = f"{block['basis']} " if block.get("basis") else ""
    axes.set_xlabel(f"{basis}arithmetic intensity (FLOP/byte)")
    axes.set_ylabel(f"throughput{f' of {basis}work' if basis else ''} (FLOP/s)")
    axes.grid(visible=True)
    if points or models:
        _legend(axes, columns=1 if "traces" in block else 3)


def _meaning_of_colours(block: Mapping[str, Any]) -> str:
    """What colours tell apart."""
    return "trace" if "traces" in block else "precision"


def _roofs(axes: Axes, block: Mapping[str, Any], window: tuple[float, float, float], room: Room) -> None:
    """Slopes and peaks, the highest first; a ridge's number that would stand on another's is left out."""
    (left, right, low), roofs = window, block["roofs"]
    for index, bandwidth in enumerate(sorted({r["bandwidth"] for r in roofs}, reverse=True)):
        under = [r for r in roofs if r["bandwidth"] == bandwidth]
        traces = {r.get("trace") for r in under}
        color = _color(traces.pop()) if len(traces) == 1 else _NO_ROOF
        start = max(left, low / bandwidth) * 1.4 * _STAGGER**index
        _slope(axes, bandwidth, max(r["peak"] for r in under), left, start, color)
    ridges: list[float] = []
    for roof in sorted(roofs, key=lambda r: -r["peak"]):
        ridge, color = roof["peak"] / roof["bandwidth"], _color(roof[_meaning_of_colours(block)])
        _peak(axes, roof, block["precisions"][roof["precision"]], (right, low), color, room)
        if not any(1 / _RIDGE_WIDTH < ridge / other < _RIDGE_WIDTH for other in ridges):
            _ridge(axes, ridge, low, color)
            ridges.append(ridge)


def _legend(axes: Axes, columns: int) -> None:
    legend = axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2, handletextpad=0.1)
    for handle in legend.legend_handles:
        handle.set_sizes([18])


def _all_points(axes: Axes, points: Sequence[Mapping[str, Any]], block: Mapping[str, Any]) -> None:
    """The points of each precision, and of each trace where there are several, under a name in the legend."""
    names: dict[int | None, str] = {**dict(enumerate(block["precisions"])), None: "precision unknown"}
    traces = block.get("traces")
    for trace, title in enumerate(traces or [""]):
        own = [p for p in points if p.get("trace", 0) == trace]
        for precision, name in names.items():
            chosen = [p for p in own if p["precision"] == precision]
            label = f"{title}, {name}" if traces else name
            _points(axes, chosen, precision, label, _color(trace if traces else precision))


def _window(points: Sequence[Mapping[str, Any]], roofs: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Whole decades around all points and ridges: left, right, low, high."""
    ridges = [r["peak"] / r["bandwidth"] for r in roofs]
    xs = [*(p["x"] for p in points), *ridges] or [1.0]
    ys = [*(p["y"] for p in points), *(r["peak"] for r in roofs)] or [1.0]
    return (*_decades(min(xs) / 2, max(xs) * 4), *_decades(min(ys) / 2, max(ys) * 2))


def _decades(low: float, high: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _slope(axes: Axes, bandwidth: float, highest: float, left: float, start: float, color: str) -> None:
    """The roof that a bandwidth is, up to the highest peak over it; one line for all precisions under it."""
    axes.plot([left, highest / bandwidth], [left * bandwidth, highest], color=color, zorder=2)
    axes.annotate(
        engineering(bandwidth, "B/s"), (start, start * bandwidth), xytext=(-1, 3), textcoords="offset points",
        fontsize=6, color=color, rotation=_angle(axes), rotation_mode="anchor",
    )  # fmt: skip


def _peak(axes: Axes, roof: Mapping[str, Any], name: str, window: Sequence[float], color: str, room: Room) -> None:
    """The roof that a peak is, and a dotted line down from the ridge where it meets the slope."""
    right, low = window
    peak = roof["peak"]
    ridge = peak / roof["bandwidth"]
    axes.plot([ridge, right], [peak, peak], color=color, zorder=2)
    axes.plot([ridge, ridge], [low, peak], color=color, linewidth=0.7, linestyle=":", zorder=1)
    label = f"{name} {engineering(peak, 'FLOP/s')}"
    aside = len(label) * _FONT * 0.6
    above, below = _FONT / 2 + 2, -_FONT / 2 - 2
    offsets = [(-2 - aside * n, up, True) for n in range(3) for up in (above, below)]
    across, up, _ = room.fit(label, _FONT, (right, peak), offsets) or offsets[0]
    axes.annotate(
        label, (right, peak), xytext=(across, up), textcoords="offset points", ha="right", va="center",
        fontsize=_FONT, color=color,
    )  # fmt: skip


def _ridge(axes: Axes, ridge: float, low: float, color: str) -> None:
    axes.annotate(
        f"ridge {ridge:.3g}", (ridge, low), xytext=(2, 3), textcoords="offset points", fontsize=6, color=color,
        rotation=90, ha="left", va="bottom",
    )  # fmt: skip


def _angle(axes: Axes) -> float:
    """The angle at which a line of slope one lies, in degrees, as the figure is shaped before its layout."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    box, size = axes.get_position(), axes.get_figure().get_size_inches()
    across = box.width * size[0] / math.log10(right / left)
    up = box.height * size[1] / math.log10(high / low)
    return math.degrees(math.atan2(up, across))


def _points(axes: Axes, points: Sequence[Mapping[str, Any]], precision: int | None, name: str, color: str) -> None:
    if not points:
        return
    areas = [_MIN_AREA + (_MAX_AREA - _MIN_AREA) * (p["part"] or 0) for p in points]
    axes.scatter(
        [p["x"] for p in points], [p["y"] for p in points], areas, color=color, alpha=0.65, label=name,
        marker=MARKERS[(precision or 0) % len(MARKERS)], linewidths=0.4, edgecolors="white", zorder=3,
    )  # fmt: skip


def _models(axes: Axes, models: Sequence[Mapping[str, Any]], colored_by: str) -> None:
    if models:
        axes.scatter(
            [m["x"] for m in models], [m["y"] for m in models], 60, marker="*", zorder=4, label="the model",
            facecolors="none", edgecolors=[_color(m[colored_by]) for m in models], linewidths=0.9,
        )  # fmt: skip


def _color(index: int | None) -> str:
    return _NO_ROOF if index is None else PALETTE[index % len(PALETTE)]


def _ticks(axes: Axes) -> None:
    """Decades in words of engineers: 10 G, 100 G, 1 T."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 (only for figures)

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10, numticks=8))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: engineering(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: engineering(value)))
