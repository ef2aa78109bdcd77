"""From an analysis, of one trace or several, to the bytes of a file: its panels, their size, how they are written."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.figure.look import Look, drawing, require_matplotlib
from xsp_analyze.figure.panels import MAX_CHARACTERS_UPRIGHT, MAX_NAMES, panel
from xsp_analyze.pages.report.figures import figure as blocks_of
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import UNKNOWN, scale_of, tell_apart
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from xsp_analyze.core import Analysis, Column, FigureSpec, Result
    from xsp_analyze.service import Answers

__all__ = ["Drawn", "Over", "blocks_of_several", "draw", "draw_several", "figure_of_panels", "joint_blocks"]

# Rooflines of several traces in one: a colour a trace, the roofs of every device.

_LISTS = ("roofs", "points", "models")


def joint_blocks(traces: Mapping[str, Answers], analysis: Analysis) -> list[dict[str, Any]]:
    """The roofline of the analysis with those of all traces, by their names, and the sentences of each.

    XspError where the analysis draws no roofline, or a trace has no answer or nothing to draw.
    """
    if analysis.figure is None or analysis.figure.kind != "roofline":
        raise XspError(
            f"{analysis.id} ({analysis.title}) draws no roofline, and only rooflines hold several traces",
            advice="A09, A14, A15 and B23 draw rooflines; `xsp compare` and `xsp cohort` put other tables side by side",
        )
    panels, notes = {}, []
    for name, answers in traces.items():
        result = answers.of(analysis.id)
        if isinstance(result, str):
            raise XspError(f"{name}: {result.rstrip('.')}")
        blocks = blocks_of(answers, result)
        if not any(block["type"] == "roofline" for block in blocks):
            raise XspError(f"{name}: {analysis.id} ({analysis.title}) has nothing to draw in this trace")
        panels[name] = next(block for block in blocks if block["type"] == "roofline")
        notes += [{**b, "text": f"{name}: {b['text']}"} for b in blocks if b["type"] == "text"]
    return [_join_blocks(panels), *notes]


def _join_blocks(panels: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One block: precisions of all, and in roofs, points and models which trace each is of."""
    first = next(iter(panels.values()))
    precisions = list(dict.fromkeys(name for block in panels.values() for name in block["precisions"]))
    lists: dict[str, list[dict[str, Any]]] = {key: [] for key in _LISTS}
    for trace, block in enumerate(panels.values()):
        for key in _LISTS:
            lists[key] += [_of_trace(each, trace, block["precisions"], precisions) for each in block[key]]
    return {
        **first,
        "precisions": precisions,
        "traces": list(panels),
        **lists,
        "roofs": _distinct_roofs(lists["roofs"]),
    }


def _of_trace(each: Mapping[str, Any], trace: int, own: Sequence[str], precisions: Sequence[str]) -> dict[str, Any]:
    index = each["precision"]
    return {**each, "trace": trace, "precision": None if index is None else precisions.index(own[index])}


def _distinct_roofs(roofs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each roof once; one that several traces have is of none of them."""
    distinct: dict[tuple[object, ...], dict[str, Any]] = {}
    for roof in roofs:
        key = (roof["precision"], f"{roof['peak']:.4g}", f"{roof['bandwidth']:.4g}")
        other = distinct.get(key)
        distinct[key] = roof if other is None or other["trace"] == roof["trace"] else {**other, "trace": None}
    return list(distinct.values())


# Figures of several traces: bars side by side, step times as boxes, and how a model scales.

_MAX_ROWS = 12
_Blocks = list[dict[str, Any]]


class Over(StrEnum):
    """What a model scales over."""

    BATCH_SIZE = "batch-size"
    DEVICES = "devices"


_SCALES = {Over.BATCH_SIZE: "batch_size", Over.DEVICES: "devices"}


def blocks_of_several(traces: Mapping[str, Answers], analysis: Analysis, over: Over | None = None) -> _Blocks:
    """What to draw of the analysis for all traces, by their names, and sentences on what is not drawn.

    A roofline with those of all; of A01 boxes of step times, or latency and throughput `over` something; else bars of
    all traces side by side. XspError where the analysis has no such figure, or a trace no answer.
    """
    spec = analysis.figure
    times_steps = any(column.name == "durations" for column in analysis.columns)  # A01
    if over is not None and not times_steps:
        raise XspError(f"{analysis.id} ({analysis.title}) is not drawn over {over}", advice="A01 is: -a A01")
    if spec is not None and spec.kind == "roofline":
        return joint_blocks(traces, analysis)
    by_layer = spec is not None and spec.kind == "stacked_bars" and spec.x == "layer_index"
    if spec is None or by_layer or spec.kind == "icicle" or (spec.kind == "scatter" and not times_steps):
        raise XspError(
            f"{analysis.id} ({analysis.title}) has no figure of several traces",
            advice="Bars, rooflines and A01 have; `xsp compare` and `xsp cohort` have others side by side",
        )
    results = {name: _result(name, answers, analysis) for name, answers in traces.items()}
    if times_steps:
        return _boxes(results) if over is None else _scaling(traces, results, over)
    return _stacks(traces, results) if spec.kind == "stacked_bars" else _grouped_bar_blocks(results, spec)


def _result(name: str, answers: Answers, analysis: Analysis) -> Result:
    result = answers.of(analysis.id)
    if isinstance(result, str):
        raise XspError(f"{name}: {result.rstrip('.')}")
    return result


def _stacks(traces: Mapping[str, Answers], results: Mapping[str, Result]) -> _Blocks:
    """The parts of each row of each trace under one another."""
    panels = {name: blocks_of(traces[name], result) for name, result in results.items()}
    stacks = {name: block for name, blocks in panels.items() for block in blocks if block["type"] == "stack"}
    _check_something(stacks, panels)
    first = next(iter(stacks.values()))
    labels = [f"{clean(name)}: {label}" for name, block in stacks.items() for label in block["labels"]]
    series = [
        {**one, "values": [value for block in stacks.values() for value in block["series"][at]["values"]]}
        for at, one in enumerate(first["series"])
    ]
    return [{**first, "labels": labels, "series": series}, *_texts(panels)]


def _texts(panels: Mapping[str, Sequence[Mapping[str, Any]]]) -> _Blocks:
    return [
        {**block, "text": f"{name}: {block['text']}"}
        for name, blocks in panels.items()
        for block in blocks
        if block["type"] == "text"
    ]


def _check_something(drawn: Mapping[str, object], expected: Mapping[str, object]) -> None:
    for name in expected:
        if name not in drawn:
            raise XspError(f"{name}: there is nothing to draw in this trace")


def _grouped_bar_blocks(results: Mapping[str, Result], spec: FigureSpec) -> _Blocks:
    """Of every y a panel: the rows that take most in any trace, a bar a trace; what a trace lacks has none."""
    tables = [
        result.table.with_columns(pl.lit(index, pl.Int64).alias("_trace"))
        for index, result in enumerate(results.values())
    ]
    result = next(iter(results.values()))
    rows = pl.concat(tables, how="diagonal_relaxed")
    x = "kernel_label" if spec.x == "kernel_name" and "kernel_label" in rows.columns else spec.x
    keys = list(dict.fromkeys([x, *(name for name in ("layer_name", spec.color) if name and name in rows.columns)]))
    blocks: _Blocks = []
    for y in spec.y:
        if rows[y].null_count() < rows.height:
            blocks += _panel(result, rows, keys, y, list(results))
    _check_something(dict.fromkeys(results if blocks else ()), results)
    return blocks


def _panel(result: Result, rows: pl.DataFrame, keys: Sequence[str], y: str, names: Sequence[str]) -> _Blocks:
    """One panel; rows that share keys in a trace are one, in sum where they add up, else the largest of them."""
    value = pl.col(y).sum() if y in result.analysis.additive else pl.col(y).max()
    with_value = rows.drop_nulls(y).group_by("_trace", *keys, maintain_order=True).agg(value)
    largest = with_value.group_by(keys, maintain_order=True).agg(pl.col(y).max())
    shown = largest.sort(y, descending=True, maintain_order=True).head(_MAX_ROWS).drop(y)
    columns = [
        shown.join(
            with_value.filter(pl.col("_trace") == at),
            on=list(keys),
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )[y]
        for at in range(len(names))
    ]
    column = next(c for c in result.columns if c.name == y)
    values = [[None if v is None else max(v, 0) for v in series.to_list()] for series in columns]
    scale = scale_of(column, [v for series in values for v in series])
    block = {
        "type": "grouped",
        "labels": _labels(shown, keys),
        "name": y.removesuffix("_ns").removesuffix("_bytes").replace("_", " "),
        "unit": scale.unit,
        "series": [
            {"name": clean(name), "values": [None if v is None else v / scale.divisor for v in series]}
            for name, series in zip(names, values, strict=True)
        ],
    }
    left_out = largest.height - shown.height
    return (
        [block, {"type": "text", "text": f"Drawn: the {_MAX_ROWS} of {largest.height:,} with most."}]
        if left_out
        else [block]
    )


def _labels(rows: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    texts = {key: [clean(UNKNOWN if v is None else str(v)) for v in rows[key].to_list()] for key in keys}
    if keys[0] == "layer_index" and "layer_name" in texts:
        return [f"{index}  {name}" for index, name in zip(texts["layer_index"], texts["layer_name"], strict=True)]
    others = [texts[key] for key in keys[1:]]
    return tell_apart(texts[keys[0]], [list(row) for row in zip(*others, strict=True)] or [[]] * rows.height)


def _boxes(results: Mapping[str, Result]) -> _Blocks:
    """Of each trace the latencies of its steps."""
    durations = {name: _durations(result) for name, result in results.items()}
    _check_something({name: values for name, values in durations.items() if values}, durations)
    column = next(c for c in next(iter(results.values())).columns if c.name == "latency_ns")
    scale = scale_of(column, [v for values in durations.values() for v in values])
    boxes = [[v / scale.divisor for v in values] for values in durations.values()]
    return [
        {
            "type": "boxes",
            "labels": [clean(n) for n in durations],
            "boxes": boxes,
            "unit": scale.unit,
            "name": "step time",
        }
    ]


def _durations(result: Result) -> list[int]:
    return [value for row in result.table["durations"].to_list() for value in row or []]


def _scaling(traces: Mapping[str, Answers], results: Mapping[str, Result], over: Over) -> _Blocks:
    """Latency and throughput, a point a trace and batch size."""
    x = _SCALES[over]
    parts = {name: _points(result, traces[name]) for name, result in results.items()}
    if unknown := [name for name, part in parts.items() if part[x].null_count()]:
        raise XspError(
            f"the {x.replace('_', ' ')} of {', '.join(unknown)} is unknown",
            advice="A run set tells it, and so does the model in a bundle of several runs",
        )
    points = pl.concat(parts.values(), how="diagonal_relaxed").sort(x, "latency_ns")
    if points[x].n_unique() == 1:
        raise XspError(f"all traces have the same {x.replace('_', ' ')}, {points[x][0]}", advice="Leave out --over")
    columns = {c.name: c for c in next(iter(results.values())).columns}
    return [block for y in ("latency_ns", "throughput_per_s") for block in _line(points, x, columns[y])]


def _line(points: pl.DataFrame, x: str, column: Column) -> _Blocks:
    pairs = [[at, value] for at, value in points.select(x, column.name).iter_rows() if value is not None]
    if len(pairs) < 2:  # noqa: PLR2004 (a line has two ends)
        return []
    scale = scale_of(column, [value for _, value in pairs])
    shown = {"unit": scale.unit, "divisor": scale.divisor, "decimals": scale.decimals}
    title = column.name.removesuffix("_ns").removesuffix("_per_s")
    return [{"type": "line", "title": title, "x": x.replace("_", " "), "points": pairs, **shown}]


def _points(result: Result, answers: Answers) -> pl.DataFrame:
    devices = len({(device["run_id"], device["device_id"]) for device in answers.summary.devices}) or None
    chosen = result.table.select("batch_size", "latency_ns", "throughput_per_s")
    return chosen.with_columns(pl.lit(devices, pl.Int64).alias("devices"))


_SINGLE, _DOUBLE = 3.5, 7.16
_MANY_COLUMNS = 40
_BAR_INCHES = 0.17
_GROUP_INCHES = 0.1  # a bar of a group
_UPRIGHT_INCHES, _LINE_INCHES = 0.05, 0.25
_METADATA: Mapping[str, Mapping[str, str | None]] = {  # nothing that differs from day to day
    "pdf": {"Creator": "xsp", "Producer": "xsp", "CreationDate": None, "ModDate": None},
    "svg": {"Creator": "xsp", "Date": None},
    "png": {"Software": "xsp"},
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure as a file, and sentences on what it leaves out."""

    content: bytes
    notes: Sequence[str]


def draw(answers: Answers, analysis: Analysis, suffix: str, look: Look | None = None) -> Drawn:
    """The analysis's figure as pdf, svg or png; the same trace and look give the same bytes.

    XspError where the analysis has no figure, the trace no answer, or the answer nothing to draw.
    """
    if analysis.figure is None:
        raise XspError(f"{analysis.id} ({analysis.title}) has no figure", advice=f"These have: {_with_figures()}")
    result = answers.of(analysis.id)
    if isinstance(result, str):
        raise XspError(result.rstrip("."))
    return _draw_blocks(blocks_of(answers, result), analysis, suffix, look)


def draw_several(
    traces: Mapping[str, Answers], analysis: Analysis, suffix: str, look: Look | None = None, over: Over | None = None
) -> Drawn:
    """One figure of several traces, each by its name; see `blocks_of_several` for what it refuses."""
    return _draw_blocks(blocks_of_several(traces, analysis, over), analysis, suffix, look)


def _draw_blocks(blocks: Sequence[Mapping[str, Any]], analysis: Analysis, suffix: str, look: Look | None) -> Drawn:
    assert analysis.figure is not None  # noqa: S101 (blocks are of a figure)
    panels = [b for b in blocks if b["type"] != "text"]
    notes = [str(b["text"]) for b in blocks if b["type"] == "text"]
    if not panels:
        raise XspError(
            f"{analysis.id} ({analysis.title}) has nothing to draw in this trace",
            advice=f"`xsp analyze INPUT -a {analysis.id}` shows its table",
        )
    require_matplotlib()
    return Drawn(_file(panels, analysis.figure.x, suffix, look or Look()), notes)


def _with_figures() -> str:
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415 (only for an error)

    return ", ".join(a.id for a in all_analyses() if a.figure)


def _file(panels: Sequence[Mapping[str, Any]], x: str, suffix: str, look: Look) -> bytes:
    out = BytesIO()
    with warnings.catch_warnings(), drawing(look.style):
        warnings.simplefilter("ignore", UserWarning)  # characters that the font lacks are drawn as boxes
        figure_of_panels(panels, x, look.width).savefig(out, format=suffix, metadata=dict(_METADATA[suffix]))
    return out.getvalue()


def figure_of_panels(panels: Sequence[Mapping[str, Any]], x: str, width: float | None) -> Figure:
    """The panels under one another in a figure so many inches wide (null: what suits them)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (only for figures)

    width = width or max(map(_width, panels))
    heights = [_height(p, width) for p in panels]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    all_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, block in zip(all_axes[:, 0], panels, strict=True):
        panel(axes, block, x)
    return figure


def _width(block: Mapping[str, Any]) -> float:
    wide = (
        block["type"] == "icicle"
        or "traces" in block
        or (block["type"] == "columns" and len(block["labels"]) > _MANY_COLUMNS)
    )
    return _DOUBLE if wide else _SINGLE


def _height(block: Mapping[str, Any], width: float) -> float:
    """Bars need room for each row; the others have a shape."""
    if block["type"] == "boxes":
        return 0.6 + 2 * _BAR_INCHES * len(block["labels"])
    if block["type"] == "grouped":
        traces = len(block["series"])
        return 0.8 + _GROUP_INCHES * len(block["labels"]) * (1 + traces) + _LINE_INCHES * -(-traces // 2)
    if block["type"] in ("bars", "stack"):
        return 0.6 + _BAR_INCHES * len(block["labels"]) + (0.25 if len(block["series"]) > 1 else 0)
    shape = {"roofline": 0.8, "icicle": 0.4}.get(block["type"], 0.6 if width <= _SINGLE else 0.35) * width
    return shape + (_upright_inches(block["labels"]) if block["type"] == "columns" else 0.0)


def _upright_inches(labels: Sequence[str]) -> float:
    """What names below columns take, beyond a line; numbers stand on one."""
    if len(labels) > MAX_NAMES:
        return 0.0
    longest = max((len(label) for label in labels), default=0)
    return max(min(longest, MAX_CHARACTERS_UPRIGHT) * _UPRIGHT_INCHES - _LINE_INCHES, 0.0)
