"""Analyses as figures and tables of the page, with as many bars and rows as a page can hold."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.analyses.kernels import kernel_information, list_of_kernels, order_of_list
from xsp_analyze.classification.labels import distinct_labels
from xsp_analyze.core import Role, run
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.launch_paths import TimeTree, prune, time_tree_of_modules
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import figure_data
from xsp_analyze.pages.report.roofline import figure_of
from xsp_analyze.text.table import clean, heading, short_name
from xsp_analyze.text.units import count, count_of, or_dash, scale_of, share, tell_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.core import Column, FigureSpec, Result
    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.service import Answers
    from xsp_analyze.trace.step_view import StepView

__all__ = ["MAX_ROWS", "cut_executions", "cut_rows", "cut_tree", "figure", "module_icicle", "tree_of"]

# What is drawn of a tree of time.


def tree_of(result: Result) -> TimeTree:
    """B41 as a tree."""
    table = result.table
    parent = table["parent"].fill_null(-1).to_numpy()
    times = (table[name].fill_null(0).to_numpy() for name in ("duration_ns", "count"))
    return TimeTree(parent, table["name"].to_list(), table["kind"].to_list(), *times)


def cut_tree(tree: TimeTree, max_nodes: int) -> TimeTree:
    """`prune`, with what is left out called `3 others`."""
    return prune(tree, max_nodes, lambda number: count_of(number, "other", "others"))


# The icicle of the module tree: device time of every module, those called in it below.

_MAX_NODES = 3000


def module_icicle(result: Result) -> list[Block]:
    """The icicle as a block; nothing where no module has device time."""
    tree = time_tree_of_modules(result.table)
    if not tree.time_ns[0]:
        return []
    texts = {"counted": ["call", "calls"], "root": "Device time of all modules."}
    return [{**blocks.icicle(cut_tree(tree, _MAX_NODES)), **texts}]


# An analysis's FigureSpec as blocks of the page; a spec says what is drawn, the page's script how.

_MAX_COLUMNS = 300
_MAX_BARS = 20
_MAX_STACKS = 32
_OF_ID = re.compile(r" (?:id|index)$")
_MAX_NAME = 80  # characters of a kernel's name
_IN_ORDER = ("layer_index", "bin_start_ns", "step", "time_ns")  # axes on which neighbours are neighbours
_TIMES = ("bin_start_ns", "time_ns")
_TONES = ("layer", "compute", "communication", "memory", "rest", "idle")
_AXES = {"throughput_per_s": "throughput", "flop_per_s": "arithmetic throughput", "gpu_share": "GPU share"}
_TONE_OF = {
    "kernel_share": "gpu", "kernel_duration_ns": "gpu", "non_kernel_share": "rest", "non_kernel_ns": "rest",
    "compute_ns": "compute", "exposed_communication_ns": "communication", "exposed_memory_ns": "memory",
    "idle_ns": "idle",
}  # fmt: skip


def figure(answers: Answers, result: Result) -> list[Block]:
    """What the analysis draws; nothing where it has no figure or nothing to draw."""
    spec = result.analysis.figure
    if spec is None or result.table.is_empty():
        return []
    if spec.kind == "roofline":
        return figure_of(answers, result.analysis.id)
    if spec.kind == "icicle":
        return module_icicle(result)
    if spec.kind == "scatter":
        return list(_scatter(result, spec))
    if spec.kind == "stacked_bars":
        return _stacked_bars(result, spec)
    return list(_bars(result, spec))


def _rows_to_draw(result: Result, spec: FigureSpec, max_rows: int) -> tuple[Result, list[Block]]:
    """The result with the rows that are drawn, those with most in their order, and a sentence on the rest."""
    table = result.table.drop_nulls(spec.y[0]) if len(spec.y) == 1 else result.table
    if table.height <= max_rows:
        return replace(result, table=table), []
    top = table.with_row_index("place").sort(spec.y[0], descending=True, nulls_last=True).head(max_rows).sort("place")
    note = blocks.text(f"Drawn: the {max_rows} of {count(table.height)} with most.")
    return replace(result, table=top.drop("place")), [note]


def _series(result: Result, spec: FigureSpec) -> list[dict[str, Any]]:
    data = figure_data(result, spec)
    series = data["series"]
    assert isinstance(series, list)  # noqa: S101 (figure_data's own)
    docs = {c.name: c for c in result.columns}
    return [
        {
            **s,
            "name": docs[s["name"]].name.removesuffix("_ns").removesuffix("_bytes").replace("_", " "),
            "tone": _TONE_OF.get(s["name"], _TONES[index % len(_TONES)]),
            "values": [None if v is None else max(v, 0) for v in s["values"]],
        }
        for index, s in enumerate(series)
    ]


def _labels(result: Result, spec: FigureSpec) -> list[str]:
    values = result.table[spec.x].to_list()
    name = spec.x.removesuffix("_index") + "_name"
    if spec.x == "layer_index" and name in result.table.columns:
        return [f"{or_dash(i)}  {n}" for i, n in zip(values, result.table[name].to_list(), strict=True)]
    if spec.x == "device_id":
        runs = result.table["run_id"].to_list() if "run_id" in result.table.columns else [None] * len(values)
        return [f"run {or_dash(r)}, device {or_dash(d)}" for r, d in zip(runs, values, strict=True)]
    labels = _kernels(result) if spec.x == "kernel_name" else [str(or_dash(v)) for v in values]
    return labels if spec.x in _TIMES else tell_apart(labels, _details(result, spec))


def _details(result: Result, spec: FigureSpec) -> list[list[str]]:
    """What else tells each row apart: its colour, then the other keys, ids with what they are of."""
    keys = [c for c in result.columns if c.role is Role.KEY and c.name not in (spec.x, spec.color)]
    chosen = [c for c in result.columns if c.name == spec.color] + keys
    columns = [
        [
            f"{_OF_ID.sub('', heading(c))} {value}" if _is_id(c, value) else clean(str(or_dash(value)))
            for value in result.table[c.name].to_list()
        ]
        for c in chosen
    ]
    return [list(row) for row in zip(*columns, strict=True)] or [[] for _ in range(result.table.height)]


def _is_id(column: Column, value: object) -> bool:
    return isinstance(value, int) and column.name.endswith(("_id", "_index"))


def _kernels(result: Result) -> list[str]:
    """Kernels by their labels, those that share one by label and name."""
    names = [str(name) for name in result.table["kernel_name"].to_list()]
    if "kernel_label" not in result.table.columns:
        return [short_name(name, _MAX_NAME) for name in names]
    labels = [str(label) for label in result.table["kernel_label"].to_list()]
    return [clean(label) for label in distinct_labels(labels, [short_name(name, _MAX_NAME) for name in names])]


def _bars(result: Result, spec: FigureSpec) -> Iterator[Block]:
    """Columns in order where the axis has one, else the longest as bars; a chart a column, as units differ."""
    in_order = spec.x in _IN_ORDER
    for y in spec.y:
        if result.table[y].null_count() == result.table.height:
            continue
        one = replace(spec, y=(y,))
        placed = replace(result, table=result.table.drop_nulls(spec.x)) if in_order else result
        drawn, notes = _rows_to_draw(placed, one, _MAX_COLUMNS if in_order else spec.top or _MAX_BARS)
        series, labels = _series(drawn, one), _labels(drawn, one)
        title = spec.title if len(spec.y) == 1 else f"{spec.title}: {series[0]['name']}"
        if in_order:
            series[0] |= _spread(drawn, spec)
            yield blocks.bars("columns", labels, series, title=clean(title))
        else:
            order = sorted(range(len(labels)), key=lambda i: -(series[0]["values"][i] or 0))
            series[0]["values"] = [series[0]["values"][i] for i in order]
            yield blocks.bars("bars", [labels[i] for i in order], series, shares=None, title=clean(title))
        yield from notes


def _spread(result: Result, spec: FigureSpec) -> dict[str, Any]:
    """Least, quartiles and most of each bar, where the figure has them and any is known."""
    columns = [c for c in spec.spread if result.table[c].null_count() < result.table.height]
    return (
        {"spread": [result.table[c].to_list() for c in columns]} if columns and len(columns) == len(spec.spread) else {}
    )


def _stacked_bars(result: Result, spec: FigureSpec) -> list[Block]:
    in_order = spec.x in _IN_ORDER
    table = result.table.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in spec.y))
    if table.is_empty():
        return []
    drawn, notes = _rows_to_draw(replace(result, table=table), spec, _MAX_COLUMNS if in_order else _MAX_STACKS)
    kind = "columns" if in_order else "stack"
    series = [{**s, "values": [v or 0 for v in s["values"]]} for s in _series(drawn, spec)]
    return [blocks.bars(kind, _labels(drawn, spec), series, title=clean(spec.title)), *notes]


def _scatter(result: Result, spec: FigureSpec) -> Iterator[Block]:
    """Lines over the axis; of a single point nothing, and for A01 the durations of its steps instead."""
    rows = result.table.drop_nulls(spec.x).sort(spec.x)
    if rows.height > 1:
        columns = {c.name: c for c in result.columns}
        for y in spec.y:
            scale = scale_of(columns[y], rows[y].to_list())
            points = [[x, v] for x, v in rows.select(spec.x, y).iter_rows() if v is not None]
            if len(points) > 1:
                shown = {"unit": scale.unit, "divisor": scale.divisor, "decimals": scale.decimals}
                yield {
                    "type": "line",
                    "title": clean(_AXES.get(y) or y.removesuffix("_ns").replace("_", " ")),
                    "x": spec.x.replace("_", " "),
                    "points": points,
                    **shown,
                }
    elif "durations" in result.table.columns:
        yield from _durations([v for row in result.table["durations"].to_list() for v in row or []])


def _durations(values: Sequence[int]) -> Iterator[Block]:
    if len(values) > 1:
        shown = values[:_MAX_COLUMNS]
        series = [{"name": "step", "tone": "layer", "values": shown, "exact": "ns"}]
        yield blocks.bars("columns", [str(i) for i in range(len(shown))], series, title="Duration of every step")
        if len(shown) < len(values):
            yield blocks.text(f"Drawn: the first {_MAX_COLUMNS} of {count(len(values))} steps.")


# Tables cut to what a page can hold: the rows with most, in their order, and a sentence on the others.

MAX_ROWS = 1_000


def cut_rows(result: Result, by: str | None = None, max_rows: int = MAX_ROWS) -> tuple[Result, str | None]:
    """The `max_rows` rows that hold most of `by` (else of the first time, else of the first measure), in their order.

    The sentence says how many there are and which part of the column the kept ones hold; None where all are kept.
    """
    height = result.table.height
    if height <= max_rows:
        return result, None
    rank = next((c for c in result.columns if c.name == by), None) or _weightiest(result)
    if rank is None:
        first = _with_table(result, result.table.head(max_rows))
        return first, f"The first {count(max_rows)} of {count(height)} rows. {_where(result)}"
    table = result.table.filter(_longest(result.table[rank.name], max_rows)).head(max_rows)
    return _with_table(result, table), _sentence(_with_table(result, table), rank, result.table[rank.name], max_rows)


def cut_executions(frames: StepView, max_rows: int = MAX_ROWS) -> tuple[Result, str]:
    """A08 cut to `cut_rows` where there are more: the others, which may be millions, are not described."""
    order = order_of_list(frames)
    duration = frames.once(kernel_executions)["duration_ns"].gather(order)
    kept = _longest(duration, max_rows).arg_true().cast(pl.Int64)[:max_rows].to_numpy()
    result = run(
        replace(
            kernel_information,
            function=lambda frames: list_of_kernels(frames, frames.once(kernel_executions)[order[kept]], kept),
        ),
        frames,
    )
    rank = next(c for c in result.columns if c.name == "duration_ns")
    return result, _sentence(result, rank, duration, max_rows)


def _longest(values: pl.Series, max_rows: int) -> pl.Series:
    """Whether each value is one of the largest."""
    order = pl.col(values.name).rank("ordinal", descending=True).fill_null(len(values) + 1)
    return values.to_frame().select(order <= max_rows).to_series()


def _sentence(kept: Result, rank: Column, values: pl.Series, max_rows: int) -> str:
    total, held = total_of(values), total_of(kept.table[rank.name])
    part = f", {share(held / total)} of all {heading(rank)}" if total else ""
    return f"The {count(max_rows)} rows of {count(len(values))} with most {heading(rank)}{part}. {_where(kept)}"


def _with_table(result: Result, table: pl.DataFrame) -> Result:
    return replace(result, table=table)


def _where(result: Result) -> str:
    return f"xsp analyze INPUT -a {result.analysis.id} -f csv writes them all."


def _weightiest(result: Result) -> Column | None:
    measures = [c for c in result.columns if c.role is Role.MEASURE and result.table[c.name].dtype.is_numeric()]
    times = [c for c in measures if c.unit == "ns"]
    return next(iter([*times, *measures]), None)
