"""Rooflines: two logarithmic axes, a roof with its ridge for every precision, points as large as their time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xsp_analyze.figure.look import MARKERS, PALETTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["roofline"]

_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MIN_AREA, _MAX_AREA = 6.0, 160.0  # square points
_NO_ROOF = "#777777"


def roofline(axes: Axes, block: Mapping[str, Any]) -> None:
    """Draws the page's block of a roofline: points, roofs with ridges, and the model as a star."""
    points, models, roofs = block["points"], block["models"], block["roofs"]
    left, right, low, high = _window([*points, *models], roofs)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    for bandwidth in dict.fromkeys(r["bandwidth"] for r in roofs):
        _slope(axes, bandwidth, max(r["peak"] for r in roofs if r["bandwidth"] == bandwidth), (left, low))
    for roof in roofs:
        _peak(axes, roof, block["precisions"], (right, low))
    for precision, name in enumerate(block["precisions"]):
        _points(axes, [p for p in points if p["precision"] == precision], precision, name)
    _points(axes, [p for p in points if p["precision"] is None], None, "precision unknown")
    _models(axes, models)
    _ticks(axes)
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel("throughput (FLOP/s)")
    axes.grid(visible=True)
    if points or models:
        legend = axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2, handletextpad=0.1)
        for handle in legend.legend_handles:
            handle.set_sizes([18])


def _window(points: Sequence[Mapping[str, Any]], roofs: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Whole decades around all points and ridges: left, right, low, high."""
    ridges = [r["peak"] / r["bandwidth"] for r in roofs]
    xs = [*(p["x"] for p in points), *ridges] or [1.0]
    ys = [*(p["y"] for p in points), *(r["peak"] for r in roofs)] or [1.0]
    return (*_decades(min(xs) / 2, max(xs) * 4), *_decades(min(ys) / 2, max(ys) * 2))


def _decades(low: float, high: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _slope(axes: Axes, bandwidth: float, highest: float, window: Sequence[float]) -> None:
    """The roof that a bandwidth is, up to the highest peak over it; one line for all precisions under it."""
    left, low = window
    axes.plot([left, highest / bandwidth], [left * bandwidth, highest], color=_NO_ROOF, zorder=2)
    start = max(left, low / bandwidth) * 1.4
    axes.annotate(
        f"{_engineering(bandwidth)}B/s", (start, start * bandwidth), xytext=(-1, 3), textcoords="offset points",
        fontsize=6, color=_NO_ROOF, rotation=_angle(axes), rotation_mode="anchor",
    )  # fmt: skip


def _peak(axes: Axes, roof: Mapping[str, Any], names: Sequence[str], window: Sequence[float]) -> None:
    """The roof that a peak is, and a dotted line down from the ridge where it meets the slope."""
    right, low = window
    peak, color = roof["peak"], _color(roof["precision"])
    ridge = peak / roof["bandwidth"]
    axes.plot([ridge, right], [peak, peak], color=color, zorder=2)
    axes.plot([ridge, ridge], [low, peak], color=color, linewidth=0.7, linestyle=":", zorder=1)
    axes.annotate(
        f"{names[roof['precision']]} {_engineering(peak)}FLOP/s", (right, peak), xytext=(-2, 2),
        textcoords="offset points", ha="right", va="bottom", fontsize=6, color=color,
    )  # fmt: skip
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


def _points(axes: Axes, points: Sequence[Mapping[str, Any]], precision: int | None, name: str) -> None:
    if not points:
        return
    areas = [_MIN_AREA + (_MAX_AREA - _MIN_AREA) * (p["part"] or 0) for p in points]
    axes.scatter(
        [p["x"] for p in points], [p["y"] for p in points], areas, color=_color(precision), alpha=0.65, label=name,
        marker=MARKERS[(precision or 0) % len(MARKERS)], linewidths=0.4, edgecolors="white", zorder=3,
    )  # fmt: skip


def _models(axes: Axes, models: Sequence[Mapping[str, Any]]) -> None:
    if models:
        axes.scatter(
            [m["x"] for m in models], [m["y"] for m in models], 60, marker="*", zorder=4, label="the model",
            facecolors="none", edgecolors=[_color(m["precision"]) for m in models], linewidths=0.9,
        )  # fmt: skip


def _color(precision: int | None) -> str:
    return _NO_ROOF if precision is None else PALETTE[precision % len(PALETTE)]


def _ticks(axes: Axes) -> None:
    """Decades in words of engineers: 10 G, 100 G, 1 T."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 (only for figures)

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10, numticks=8))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _engineering(value).strip()))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _engineering(value).strip()))


def _engineering(value: float) -> str:
    """`19.5 T`: three digits that count, and the prefix, after which the unit follows."""
    step, prefix = next((s for s in _STEPS if value >= s[0]), (1.0, ""))
    return f"{value / step:.3g} {prefix}"
