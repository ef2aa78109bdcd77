"""The parts of a report that go into detail: the tree of time, layers, kernels, devices, modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Column, Result, Role
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.layers.folded_layers import folded_rows, largest_blocks
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.layers.modules import module_rows
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import figure_data
from xsp_analyze.pages.report.figures import cut_rows, cut_tree, module_icicle, tree_of
from xsp_analyze.pages.report.overview import of_layer_types
from xsp_analyze.text.units import count, cut, share

if TYPE_CHECKING:
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = ["blocks_of_layers", "devices", "gpu_by_layer", "kernels", "layer_types", "layers", "modules", "time_by_path"]

_MAX_NODES = 6000
_MAX_NAMES = 600_000  # characters of the names of nodes
_MAX_COLUMNS = 300
_MAX_LAYERS = 3_000
_MAX_PARTS = 6_000  # of all layers together
_MAX_IN_ORDER = 100  # layers shown in order of execution at first; of more, the longest come first
_LAYER_LABELS = ("model_share", "allocated_bytes", "shapes")
_PARTS = {  # of a device's window, in the order they are stacked: name on the page, colour
    "compute_ns": ("compute", "compute"),
    "exposed_communication_ns": ("communication alone", "communication"),
    "exposed_memory_ns": ("copies and memsets alone", "memory"),
    "idle_ns": ("idle", "idle"),
}


def time_by_path(answers: Answers) -> Section:
    """The icicle of device time."""
    means = (
        "Device time of the whole trace, all steps and calls added up by path: layers hold layers, then operators,"
        " then kernels. A box is as wide as its share; click one to zoom in, and the path above to zoom out."
        " Work of the backward pass stands under the layer it belongs to." + answers.source_runs_sentence(kernels="all")
    )
    result = answers.of("B41")
    drawn = [blocks.missing(result)] if isinstance(result, str) else _icicle(result)
    return blocks.section("tree", "Tree", "Device time by path", means, drawn)


def _icicle(result: Result) -> list[Block]:
    tree = tree_of(result)
    if not tree.time_ns[0]:
        return [blocks.missing("The trace holds no device work, so there is no device time to divide.")]
    return blocks.cut_names({**blocks.icicle(cut_tree(tree, _MAX_NODES)), "link": "tree"}, _MAX_NAMES)


def layers(answers: Answers) -> Section:
    """The table of layers."""
    result = _with_labels(answers.of("A11"), answers.of("A02"))
    means = (
        f"One row a layer, {answers.basis}; click one for its operators, library calls and kernels. Latency is the"
        " layer's own time, outside the layers inside it;"
        " kernel duration is the device time of its work, backward included."
        f"{answers.source_runs_sentence(layers='latency', kernels='device time')}"
    )
    bar = "layer_latency_ns" if not isinstance(answers.of("A11"), str) else "latency_ns"
    sorted_by = bar if not isinstance(result, str) and result.table.height > _MAX_IN_ORDER else None
    if isinstance(result, str):
        return blocks.section("layers", "Layers", "Layers", means, [blocks.missing(result)])
    kept, left_out = cut_rows(result, bar, _MAX_LAYERS)
    table = blocks.table(kept, bar=bar, sorted_by=sorted_by, name="layers", left_out=left_out)
    return blocks.section(
        "layers", "Layers", "Layers", means, [{**table, "type": "layers", "parts": _parts(answers, kept)}]
    )


def _parts(answers: Answers, layers: Result) -> Block:
    """What a click on a layer shows: its device work down to the kernels, and its operators on the host."""
    work = _rows_of_layers(answers.of("B39"), layers, "duration_ns")
    host = _rows_of_layers(answers.of("B40"), layers, "self_ns")
    return {"work": work, "host": host, "basis": answers.basis}


def _rows_of_layers(answer: Result | str, layers: Result, by: str) -> Block:
    """The rows with most of `by` over all layers, as a table with `row`, the row in `layers` of each (-1: in none)."""
    if isinstance(answer, str):
        return {"missing": answer, "columns": [], "values": [], "row": []}
    kept, left_out = cut_rows(answer, by, _MAX_PARTS)
    numbered = layers.table.select(*LAYER_KEY).with_row_index("place")
    row = kept.table.join(numbered, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")["place"]
    table = blocks.table(kept, bar=by, leave_out=LAYER_KEY, left_out=left_out)
    return {**table, "row": row.cast(pl.Int64).fill_null(-1).to_list(), "unknown": []}


def _with_labels(times: Result | str, labels: Result | str) -> Result | str:
    """A11 with what A02 says of each layer beside; either alone where there is no other."""
    if isinstance(times, str) or isinstance(labels, str):
        return labels if isinstance(times, str) else times
    added = [c for c in labels.columns if c.name in _LAYER_LABELS]
    described = labels.table.select(*LAYER_KEY, *(c.name for c in added))
    table = times.table.join(described, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")
    return Result(times.analysis, table, [*times.columns, *added], times.ledger_of, times.provenance_of)


def gpu_by_layer(answers: Answers) -> Section:
    """Stacked columns of device time and the rest, in order of execution."""
    means = (
        f"Each column is a layer, in order of execution, {answers.basis}: its device time below,"
        f" the rest of its latency, in which the device waited, above."
        f"{answers.source_runs_sentence(layers='latency', kernels='device time')}"
    )
    result = answers.of("A13")
    drawn = [blocks.missing(result)] if isinstance(result, str) else _stacked_layers(result)
    return blocks.section("gpu", "GPU by layer", "GPU and non-GPU time by layer", means, drawn)


def _stacked_layers(result: Result) -> list[Block]:
    """Time, not shares, so that a layer's weight shows; what is negative is drawn as nothing."""
    table = result.table
    if table.is_empty():
        return [blocks.missing("No layer has a latency in this trace.")]
    longest = table.with_row_index("order").sort("layer_latency_ns", descending=True).head(_MAX_COLUMNS)
    drawn = longest.sort("order")
    values = {
        name: [max(round(v), 0) for v in drawn[name].fill_null(0)] for name in ("kernel_duration_ns", "non_kernel_ns")
    }
    chart = blocks.bars(
        "columns",
        [f"{i}  {n}" for i, n in drawn.select("layer_index", "layer_name").iter_rows()],
        [
            {"name": "device time", "tone": "gpu", "values": values["kernel_duration_ns"], "exact": "ns"},
            {"name": "not device time", "tone": "rest", "values": values["non_kernel_ns"], "exact": "ns"},
        ],
    )
    if drawn.height == table.height:
        return [chart]
    left_out = f"Only the {_MAX_COLUMNS} longest of {count(table.height)} layers are drawn, in their order."
    return [chart, blocks.text(left_out)]


def layer_types(answers: Answers) -> Section:
    """Bars of latency by type of layer."""
    means = (
        f"Latency of all layers of a type added up, {answers.basis}; shares are of the sum over all layers,"
        f" so they add up to 100 %{_caveat(answers)}.{answers.source_runs_sentence(layers='latency')}"
    )
    result = answers.of("A06")
    drawn = [blocks.missing(result) if isinstance(result, str) else _type_bars(result)]
    drawn += [blocks.text(sentence)] if (sentence := of_layer_types(answers)) else []
    return blocks.section("types", "Layer types", "Time by layer type", means, drawn)


def _caveat(answers: Answers) -> str:
    return f"; {answers.summary.layer_caveat}" if answers.summary.layer_caveat else ""


def _type_bars(result: Result) -> Block:
    table = result.table
    return blocks.bars(
        "bars",
        table["layer_type"].to_list(),
        [{"name": "latency", "tone": "layer", "values": table["latency_ns"].to_list(), "exact": "ns"}],
        shares=table["share"].to_list(),
    )


def kernels(answers: Answers) -> Section:
    """The table of kernels by name."""
    means = (
        f"One row a kernel name, {answers.basis}: how often it ran and how long in sum. Copies and memsets are"
        " device time too. Model share is its time over the latency of the model."
        f"{answers.source_runs_sentence(kernels='device time', model='model latency')}"
    )
    result = answers.of("A10")
    block = blocks.missing(result) if isinstance(result, str) else _kernel_table(answers, result)
    return blocks.section("kernels", "Kernels", "Kernels by name", means, [block])


def _kernel_table(answers: Answers, result: Result) -> Block:
    kept, left_out = cut_rows(result, "duration_ns")
    table = blocks.table(kept, sorted_by="duration_ns", bar="duration_ns", name="kernels", left_out=left_out)
    return {**table, "type": "kernels", "classes": _rows_of_classes(answers, kept)}


def _rows_of_classes(answers: Answers, kernels: Result) -> dict[str, list[int]]:
    """The rows of kernels that did work of each class, by what launched it, as the first screen's bar has it."""
    row_of = {name: row for row, name in enumerate(kernels.table["kernel_name"].to_list())}
    names = (
        answers.per_step.once(kernel_executions).select(pl.col("kernel_class", "kernel_name").cast(pl.String)).unique()
    )
    rows: dict[str, list[int]] = {}
    for kernel_class, name in names.sort("kernel_class", "kernel_name").iter_rows():
        if name in row_of:
            rows.setdefault(kernel_class, []).append(row_of[name])
    return {kernel_class: sorted(of_class) for kernel_class, of_class in rows.items()}


def devices(answers: Answers) -> Section:
    """What each device did with its time: a bar and the numbers."""
    means = (
        "What each device did between its first and last piece of work, over the whole trace. Where kinds of work run"
        " side by side, the bar counts the time once: compute first, then communication, then copies."
        f"{answers.source_runs_sentence(kernels='all')}"
    )
    result = answers.of("B03", all_steps=True)
    if isinstance(result, str):
        return blocks.section(
            "devices", "Devices", "What each device did with its time", means, [blocks.missing(result)]
        )
    shown, left_out = cut_rows(result)
    drawn = [_device_bars(shown), blocks.table(shown, left_out=left_out)]
    return blocks.section("devices", "Devices", "What each device did with its time", means, drawn)


def _device_bars(result: Result) -> Block:
    series: list[dict[str, Any]] = [
        {"name": _PARTS[s["name"]][0], "tone": _PARTS[s["name"]][1], "values": s["values"], "exact": "ns"}
        for s in _series(result)
        if s["name"] in _PARTS
    ]
    labels = [f"run {run}, device {device}" for run, device in result.table.select("run_id", "device_id").iter_rows()]
    return blocks.bars("stack", labels, series)


def _series(result: Result) -> list[dict[str, Any]]:
    series = figure_data(result)["series"]
    assert isinstance(series, list)  # noqa: S101 (figure_data's own)
    return series


def modules(answers: Answers) -> Section | None:
    """The tree of modules; nothing where the trace has none and layers are something else."""
    answer = answers.of("B06")
    means = (
        f"Every module under the module that called it, {answers.basis}. Device sum includes the modules inside it,"
        " self only what the module launched itself; host time is how long its calls took, launches included."
        f"{answers.source_runs_sentence(kernels='device time', layers='host time')}"
    )
    if isinstance(answer, str):
        return blocks.section("modules", "Modules", "Module tree", means, [blocks.missing(answer)])
    rows = module_rows(answer.table)
    columns = [
        Column("module", rows.schema["module"], "The module, as the profiler names it.", role=Role.KEY),
        Column("depth", rows.schema["depth"], "How many modules it ran in.", role=Role.LABEL),
        Column("count", rows.schema["count"], "Calls in the forward pass."),
        Column("device_sum_ns", rows.schema["device_sum_ns"], "Device time of it and the modules in it.", "ns"),
        Column("self_device_sum_ns", rows.schema["self_device_sum_ns"], "Of that, what it launched itself.", "ns"),
        Column("forward_ns", rows.schema["forward_ns"], "Device sum of the forward pass.", "ns"),
        Column("recompute_ns", rows.schema["recompute_ns"], "Device sum of forward work done again in backward.", "ns"),
        Column("backward_ns", rows.schema["backward_ns"], "Device sum of the backward pass.", "ns"),
        Column("host_ns", rows.schema["host_ns"], "Duration of its calls on the host.", "ns"),
    ]
    result = Result(answer.analysis, rows, columns, answer.ledger_of, answer.provenance_of)
    weight = "device_sum_ns" if rows["device_sum_ns"].is_not_null().any() else "host_ns"
    kept, left_out = cut_rows(result, weight, _MAX_LAYERS)
    table = blocks.table(kept, bar=weight, tree=True, left_out=left_out)
    drawn = [each for block in module_icicle(answer) for each in blocks.cut_names(block, _MAX_NAMES)]
    return blocks.section("modules", "Modules", "Module tree", means, [*drawn, table])


# The section in which equal layers are folded: blocks, their positions, and the single layers.

_MAX_ROWS = 4_000
_MAX_NAMED = 3  # blocks in the sentence above the table
_MAX_NAME = 48  # characters of each
_TEXT = ("name", "layer_type", "outlier")


def blocks_of_layers(answers: Answers) -> Section | None:
    """The tree of layers with equal ones folded; nothing where nothing repeats."""
    answer = answers.of("B28")
    if isinstance(answer, str) or answer.table.is_empty():
        return None
    rows = folded_rows(answers.per_step)
    total_ns = total_of(rows.filter(pl.col("depth") == 0)["latency_ns"])
    held_ns = total_of(answer.table["latency_ns"])
    parts = largest_blocks(answer.table).select("block", "repetition_count")
    named = [f"{count} x {cut(block, _MAX_NAME)}" for block, count in parts.iter_rows()]
    more = f" and {count(len(named) - _MAX_NAMED)} more" if len(named) > _MAX_NAMED else ""
    held = f", {share(held_ns / total_ns)} of the latency of all layers" if total_ns else ""
    means = (
        f"Layers that are equal in type, shapes and order stand in one row: {', '.join(named[:_MAX_NAMED])}"
        f"{more}{held}."
        f" Open one for its positions, and a position for its single layers, {answers.basis}."
        " Median, least and most are over the repetitions."
    )
    return blocks.section("blocks", "Blocks", "Layers, equal ones folded", means, [_tree(answer, rows)])


def _tree(answer: Result, rows: pl.DataFrame) -> Block:
    """The rows as a table that the page folds; `layer` is what links to single layers call each."""
    left_out = None
    if rows.height > _MAX_ROWS:
        first = f"The first {count(_MAX_ROWS)} of {count(rows.height)} rows"
        left_out = f"{first}. xsp analyze INPUT -a B28 and -a A02 write them all."
        rows = rows.head(_MAX_ROWS)

    def column(name: str, doc: str, unit: str = "") -> Column:
        return Column(name, rows.schema[name], doc, unit, role=Role.LABEL if name in _TEXT else Role.MEASURE)

    columns = [
        Column("name", rows.schema["name"], "The block, a position in it, or a layer.", role=Role.KEY),
        Column("depth", rows.schema["depth"], "How deep it stands.", role=Role.LABEL),
        column("layer_type", "What kind of layer it is."),
        column("count", "Repetitions of the block, or layers at the position."),
        column("latency_ns", "Latency of all of them, outside the layers inside them.", "ns"),
        column("median_ns", "Median over the repetitions.", "ns"),
        column("min_ns", "Least of them.", "ns"),
        column("max_ns", "Most of them.", "ns"),
        column("outlier", "The repetition that takes more than 10 % and 3.5 median deviations above the median."),
        column("kernel_duration_ns", "Device time of their work, backward included.", "ns"),
        column("model_share", "Their latency over that of the model."),
    ]
    result = Result(answer.analysis, rows, columns, answer.ledger_of, answer.provenance_of)
    table = blocks.table(result, bar="latency_ns", tree=True, name="blocks", left_out=left_out)
    return {
        **table,
        "type": "folded",
        "layer": rows["layer_index"].to_list(),
        "outlier": rows["leads_to"].to_list(),
    }
