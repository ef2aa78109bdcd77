"""One panel of a figure: bars, columns, parts of a whole, lines, icicles; rooflines in a module of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.core import Column
from xsp_analyze.figure.look import PALETTE, TONES
from xsp_analyze.figure.roofline import roofline
from xsp_analyze.text.units import Scale, cut, duration, fit_names, number, number_alike, scale_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["MAX_CHARACTERS_UPRIGHT", "MAX_NAMES", "icicle", "layout", "panel"]

# Icicles: a tree of time, every node as wide as its time, those within it beneath.

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


MAX_NAMES = 24  # columns that still have room for a name each
_MAX_CHARACTERS = 34
MAX_CHARACTERS_UPRIGHT = 22
_BAR = 0.75
_BOX, _BOX_COLOR = 0.5, "#CFE3F1"
_HATCHES = ("", "///", "...")
_MAX_TICKS = 9
_AXES_SHARE = 0.75  # of a figure's width
_NUMBER_INCHES = 0.5
_CHARACTER_INCHES, _GAP_INCHES = 0.062, 0.1  # of a tick's label, at 7 points


def panel(axes: Axes, block: Mapping[str, Any], x: str) -> None:
    """Draws one of the page's blocks; `x` is the column on its axis."""
    _KINDS[block["type"]](axes, block, x)


def _bars(axes: Axes, block: Mapping[str, Any], _x: str) -> None:
    """One bar a row, the longest above, its value at its end."""
    (series,) = block["series"]
    values, unit = _values_in_unit(series)
    positions_of = range(len(values))
    drawn = axes.barh(positions_of, [v or 0 for v in values], _BAR, color=TONES["layer"])
    axes.bar_label(drawn, ["" if v is None else _short(v) for v in values], padding=2, fontsize=6)
    _rows(axes, block["labels"])
    axes.set_xlabel(_axis(series["name"], unit))
    axes.margins(x=0.12)
    axes.grid(axis="x")


def _stack(axes: Axes, block: Mapping[str, Any], _x: str) -> None:
    """Parts of each row's whole, in percent."""
    wholes = [sum(v or 0 for v in row) for row in zip(*(s["values"] for s in block["series"]), strict=True)]
    left = [0.0] * len(wholes)
    for series in block["series"]:
        parts = [100 * (v or 0) / total if total else 0.0 for v, total in zip(series["values"], wholes, strict=True)]
        axes.barh(range(len(parts)), parts, _BAR, left=left, label=series["name"], **_fill(series))
        left = [a + b for a, b in zip(left, parts, strict=True)]
    _rows(axes, block["labels"])
    axes.set_xlim(0, 100)
    axes.set_xlabel("share (%)")
    _legend(axes, len(block["series"]))


def _grouped_bars(axes: Axes, block: Mapping[str, Any], _x: str) -> None:
    """A group of bars a row, a bar a trace with its value at its end; what a trace lacks has no bar."""
    series = block["series"]
    high = _BAR / len(series)
    for at, one in enumerate(series):
        rows = [row for row, value in enumerate(one["values"]) if value is not None]
        values = [one["values"][row] for row in rows]
        heights = [row + (at - (len(series) - 1) / 2) * high for row in rows]
        color, hatch = PALETTE[at % len(PALETTE)], _HATCHES[at // len(PALETTE) % len(_HATCHES)]
        drawn = axes.barh(heights, values, high, label=one["name"], color=color, hatch=hatch)
        axes.bar_label(drawn, [_short(v) for v in values], padding=2, fontsize=5)
    _rows(axes, block["labels"])
    axes.set_xlabel(_axis(block["name"], block["unit"]))
    axes.margins(x=0.12)
    axes.grid(axis="x")
    _legend(axes, len(series))


def _boxes(axes: Axes, block: Mapping[str, Any], _x: str) -> None:
    """A box a trace from quartile to quartile with the median, whiskers to the least and most, every step a point."""
    labels, boxes = block["labels"], block["boxes"]
    for row, values in enumerate(boxes):
        first, median, third = np.quantile(values, (0.25, 0.5, 0.75))
        axes.hlines(row, min(values), max(values), color="black", linewidth=0.6, zorder=2)
        axes.barh(row, third - first, _BOX, left=first, color=_BOX_COLOR, edgecolor="black", linewidth=0.6, zorder=2)
        axes.vlines(median, row - _BOX / 2, row + _BOX / 2, color=TONES["layer"], linewidth=1.5, zorder=4)
        axes.plot(values, [row] * len(values), ".", color="black", markersize=1.5, zorder=3)
    _rows(axes, [f"{label} ({len(values)})" for label, values in zip(labels, boxes, strict=True)])
    axes.set_xlim(left=0)
    axes.set_xlabel(_axis(block["name"], block["unit"]))
    axes.grid(axis="x")


def _columns(axes: Axes, block: Mapping[str, Any], x: str) -> None:
    """Columns in the order of the axis, series on top of each other."""
    labels: Sequence[str] = block["labels"]
    base = [0.0] * len(labels)
    unit = ""
    for series in block["series"]:
        values, unit = _values_in_unit(series)
        heights = [v or 0 for v in values]
        width = _BAR if len(labels) <= MAX_NAMES else 1.0
        axes.bar(range(len(labels)), heights, width, bottom=base, label=series["name"], **_fill(series))
        base = [a + b for a, b in zip(base, heights, strict=True)]
        if "spread" in series:
            _spread(axes, series)
    several = len(block["series"]) > 1
    name = "share" if several and unit == "%" else block["series"][0]["name"]
    if x == "batch_size":  # of one batch size there are its steps
        x, name = "step", "duration"
    axes.set_ylabel(_axis(name, unit))
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(axis="y")
    _below(axes, labels, x)
    if several:
        axes.set_ylim(0, 100 if unit == "%" else None)
        _legend(axes, len(block["series"]))


def _spread(axes: Axes, series: Mapping[str, Any]) -> None:
    """Over steps, at each column: a thin line from the least to the most, a thick one from quartile to quartile."""
    divisor = series["divisor"]
    low, first, third, high = ([None if v is None else v / divisor for v in part] for part in series["spread"])
    for lower, upper, width in ((low, high, 0.5), (first, third, 1.8)):
        boxes = [
            (x, a, b) for x, (a, b) in enumerate(zip(lower, upper, strict=True)) if a is not None and b is not None
        ]
        if boxes:
            axes.vlines(*zip(*boxes, strict=True), colors="black", linewidth=width, zorder=3)


def _below(axes: Axes, labels: Sequence[str], x: str) -> None:
    """Names where each has room; else numbers, now and then."""
    if x == "bin_start_ns":
        scale = scale_of(Column(x, None, "", "ns"), [int(v) for v in labels])  # type: ignore[arg-type]
        again = [i for i in range(1, len(labels)) if int(labels[i]) < int(labels[i - 1])]
        for i in again:
            axes.axvline(i - 0.5, color="black", linewidth=0.6, linestyle="--")
        labels = [_short(int(v) / scale.divisor) for v in labels]
        axes.set_xlabel(f"{_axis('start', scale.unit)}{', one device after another' if again else ''}")
    else:
        axes.set_xlabel(x.replace("_", " ").removesuffix(" ns"))
    if len(labels) <= MAX_NAMES and x != "bin_start_ns":
        names = _names([" ".join(label.split()) for label in labels], MAX_CHARACTERS_UPRIGHT)
        axes.set_xticks(range(len(labels)), names, rotation=60, ha="right", rotation_mode="anchor")
        return
    texts = [label.split("  ")[0] for label in labels]
    every = -(-len(texts) // _room(axes, texts))
    ticks = range(0, len(texts), every)
    axes.set_xticks(ticks, [texts[i] for i in ticks])


def _room(axes: Axes, texts: Sequence[str]) -> int:
    """How many of the texts have room beside each other below the axes."""
    inches = axes.get_figure().get_size_inches()[0] * _AXES_SHARE
    return min(max(int(inches / (max(map(len, texts)) * _CHARACTER_INCHES + _GAP_INCHES)), 2), _MAX_TICKS)


def _names(labels: Sequence[str], width: int) -> list[str]:
    """The labels in at most so many characters, or in a few more where they would else read the same."""
    wider = range(width, 2 * width, 6)
    cuts = ([cut(label, wide) for label in labels] if wide > width else fit_names(labels, wide) for wide in wider)
    return next((names for names in cuts if len(set(names)) == len(names)), number_alike(fit_names(labels, width)))


def _line(axes: Axes, block: Mapping[str, Any], x: str) -> None:
    """Points in order of the axis, joined; powers of two apart where the axis is one of batch sizes."""
    xs, ys = zip(*block["points"], strict=True)
    axes.plot(xs, [y / block["divisor"] for y in ys], marker="o", color=TONES["layer"], clip_on=False)
    if x == "batch_size" and min(xs) > 0:  # devices are counted in powers of two as well
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [f"{v:g}" for v in xs])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(block["x"])
    axes.set_ylabel(_axis(block["title"], block["unit"]))
    axes.grid(axis="y")


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Names of rows, and as many numbers below as there is room for beside the names."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 (only for figures)

    names = _names(labels, _MAX_CHARACTERS)
    inches = axes.get_figure().get_size_inches()[0] - max(map(len, names), default=0) * _CHARACTER_INCHES
    axes.xaxis.set_major_locator(MaxNLocator(min(max(int(inches / _NUMBER_INCHES), 2), _MAX_TICKS)))
    axes.set_yticks(range(len(labels)), names)
    axes.set_ylim(len(labels) - 0.5, -0.5)  # the first row above
    axes.tick_params(axis="y", length=0)


def _legend(axes: Axes, count: int) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=min(count, 2), borderaxespad=0.2, handlelength=1.2)


def _fill(series: Mapping[str, Any]) -> dict[str, Any]:
    color = TONES.get(str(series.get("tone")), PALETTE[0])
    return {"color": color, "linewidth": 0}


def _values_in_unit(series: Mapping[str, Any]) -> tuple[list[float | None], str]:
    """The values in the unit that the page shows them in, and that unit."""
    if "divisor" in series:
        divisor, unit = series["divisor"], series["unit"]
    else:  # the page's script chooses
        scale = scale_of(Column(series["name"], None, "", series["exact"]), series["values"])  # type: ignore[arg-type]
        divisor, unit = scale.divisor, scale.unit
    return [None if v is None else v / divisor for v in series["values"]], str(unit)


def _axis(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _short(value: float) -> str:
    """Three digits that count."""
    return number(value, Scale(""))


_KINDS: Mapping[str, Callable[[Axes, Mapping[str, Any], str], None]] = {
    "bars": _bars,
    "boxes": _boxes,
    "grouped": _grouped_bars,
    "stack": _stack,
    "columns": _columns,
    "line": _line,
    "roofline": lambda axes, block, _: roofline(axes, block),
    "icicle": lambda axes, block, _: icicle(axes, block),
}
