"""The page of a cohort: one HTML file over all models, linking to the report of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.cohort import tables
from xsp_analyze.cohort.facts import CLASSES
from xsp_analyze.cohort.quality import NO_PRICES
from xsp_analyze.cohort.tables import cosines, leaf_order, linkage
from xsp_analyze.faults import attempt, noting_faults
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import page_by_script, program_and_version, tone
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of, duration, is_share, number, quantity, scale_of, share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.cohort.cohort import System
    from xsp_analyze.cohort.facts import Speed
    from xsp_analyze.cohort.quality import Prices, Target
    from xsp_analyze.cohort.tables import Join
    from xsp_analyze.core import Column, Result
    from xsp_analyze.pages.blocks import Block, Section

__all__ = ["dendrogram", "label", "mixes", "multiples", "render"]

# Figures of a cohort: time by class of kernels as stacked bars, and which models are alike as a tree.
_PERCENT = {"unit": "%", "divisor": 0.01, "decimals": 1}


def label(system: System) -> str:
    """What the row is called where it must be short."""
    return clean(" on ".join(filter(None, (system.label, system.facts.system))))


def mixes(systems: Sequence[System]) -> Block:
    """One bar a model, divided into classes of kernels; a name leads to the model's report."""
    groups = [s.facts.mix.class_shares for s in systems]
    series = [
        {"name": name, "tone": tone(name), "values": [group.get(name, 0.0) for group in groups], **_PERCENT}
        for name in CLASSES
        if any(name in group for group in groups)
    ]
    links = [blocks.address(s.member.report) for s in systems]
    return blocks.bars("stack", list(map(label, systems)), series, links=links)


def dendrogram(systems: Sequence[System], joins: Sequence[Join], order: Sequence[int]) -> Block:
    """A tree: models that join further left are more alike; the distance is 1 less the cosine."""
    ends = {leaf: (0.0, row + 0.5) for row, leaf in enumerate(order)}  # distance and height, by number of the cluster
    brackets = []
    for cluster, join in enumerate(joins, len(systems)):
        first, second = ends[join.first], ends[join.second]
        brackets.append({"from": [first, second], "at": join.distance})
        ends[cluster] = (join.distance, (first[1] + second[1]) / 2)
    return {
        "type": "dendrogram",
        "title": "Tree of similar models",
        "read": _first_join(systems, joins),
        "labels": [label(systems[leaf]) for leaf in order],
        "joins": brackets,
    }


def _first_join(systems: Sequence[System], joins: Sequence[Join]) -> str:
    """The first join in words, for those who do not see the tree."""
    if not joins:
        return "one model"
    first = joins[0]
    pair = f"{label(systems[first.first])} and {label(systems[first.second])}"
    return f"Of {len(systems)} models, {pair} are most alike, at a distance of {first.distance:.3f}"


# Small multiples: a chart a model, all alike, over the systems and batch sizes that it was measured on.
_MAX_MODELS = 120
_MAX_SYSTEMS = 12  # more lines than this in one small chart are no chart
_MIN_ROWS = 2
_MEANS = (
    "One small chart a model, all of one measure, each to a scale of its own from 0: a line over batch sizes where they"
    " were swept, a point where one was measured. Choose the measure; a colour is a system and framework."
)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What the charts can show: of a batch size, or of the one trace that a row stands for."""

    label: str
    unit: str
    divisor: float
    of: Callable[[System, Speed], float | None]
    of_best_alone: bool = False


_MEASURES = (
    _Measure("Throughput", "inputs/s", 1.0, lambda _, speed: speed.throughput_per_s),
    _Measure("Step time", "ms", 1e6, lambda _, speed: speed.latency_ns),
    _Measure("Device busy", "%", 0.01, lambda system, _: system.facts.gpu_share, of_best_alone=True),
    _Measure("Device time", "ms", 1e6, lambda system, _: system.facts.kernel_duration_ns, of_best_alone=True),
    _Measure("Memory peak", "GB", 1e9, lambda system, _: system.facts.peak_memory_bytes, of_best_alone=True),
)


def multiples(systems: Sequence[System]) -> list[Section]:
    """The section; none where there are not two rows to set beside each other, or nothing was timed."""
    timed = [system for system in systems if system.speeds]
    labels = list(dict.fromkeys(map(_system_label, timed)))
    if len(timed) < _MIN_ROWS or len(labels) > _MAX_SYSTEMS:
        return []
    models: dict[str, list[System]] = {}
    for system in timed:
        models.setdefault(system.facts.model, []).append(system)
    items = [_item(model, rows, labels) for model, rows in list(models.items())[:_MAX_MODELS]]
    measured = [n for n in range(len(_MEASURES)) if any(line["points"][n] for item in items for line in item["lines"])]
    block: Block = {
        "type": "multiples",
        "systems": labels,
        "measures": [
            {"label": m.label, "unit": m.unit, "divisor": m.divisor} for n, m in enumerate(_MEASURES) if n in measured
        ],
        "items": [_only(item, measured) for item in items],
    }
    left = len(models) - len(items)
    more = [blocks.text(f"{count_of(left, 'more model', 'more models')}; the table holds all.")] if left else []
    return [blocks.section("multiples", "Side by side", "Models side by side", _MEANS, [block, *more])]


def _system_label(system: System) -> str:
    facts = system.facts
    return clean(", ".join(filter(None, (facts.system, facts.framework)))) or "unnamed system"


def _item(model: str, rows: Sequence[System], labels: Sequence[str]) -> dict[str, Any]:
    return {"title": clean(model), "lines": [_line(system, labels) for system in rows]}


def _line(system: System, labels: Sequence[str]) -> dict[str, Any]:
    """Points [batch size, value] of each measure; what is of one trace alone has one."""
    best = system.best
    points = []
    for measure in _MEASURES:
        speeds = [speed for speed, _ in system.speeds]
        if measure.of_best_alone:
            speeds = [best[0]] if best else []
        pairs = [(speed.batch_size, measure.of(system, speed)) for speed in speeds]
        points.append([[batch, value] for batch, value in pairs if value is not None])
    return {
        "name": clean(system.label),
        "system": labels.index(_system_label(system)),
        "link": blocks.address(system.member.report),
        "points": points,
    }


def _only(item: dict[str, Any], measured: Sequence[int]) -> dict[str, Any]:
    """The item with the measures alone that any model has."""
    lines = [{**line, "points": [line["points"][n] for n in measured]} for line in item["lines"]]
    return {**item, "lines": lines}


_PAIR = 2
_MAX_ROWS = 2_000  # of a table; a page of more would take seconds to open
_MAX_LEAVES = 200  # more models than this are no tree that one could read
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. Rest the pointer on a heading to read"
    " what the column means. This page holds all it needs and loads nothing."
)
_MODELS = (
    "One row a model, system and framework, at its optimal batch size where batch sizes were swept, else at its"
    " fastest. Click a heading to sort, a model to open its report."
)
_MIX = (
    "Where each model's time goes, by class of kernels: all device time, each kernel by the operator that launched it"
    " or else by its name; without a device the operators' own time on the host. Neighbours are alike."
)
_TREE = (
    "Models that join further left spend their time on more similar operators. The distance is 1 less the cosine of"
    " their vectors of time by operator type (Fathom, IISWC 2016); clusters are joined by average linkage. Operators of"
    " different frameworks have different names and count as different."
)
_LOAD_TESTS = "What LoadGen itself says of each test: whether it was valid, its rate and its percentiles of latency."
_ACCURACY = "What runs say of their results, and when a training curve first reached a target (DAWNBench)."
_OUTPUTS = (
    "How far what came out of a step is from what came out of the model's first trace that recorded any. Differences"
    " say something of the computation only where weights and inputs are the same (input match)."
)
_ACROSS = (
    "Each at its own optimal or fastest batch size; speed-up is of throughput, over the slowest of the model's rows."
)


def render(
    systems: Sequence[System],
    *,
    title: str,
    prices: Prices = NO_PRICES,
    target: Target | None = None,
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
) -> str:
    """The page; sections that the cohort has nothing for are left out. `before` and `after` come around its own."""
    with noting_faults() as faults:
        own = _cohort(systems, prices, target) if systems else []
        short = attempt("The summary", lambda: _short(systems, prices), lambda fault: [f"{fault}."])
    data = {
        "kind": "XSP cohort: models and systems side by side",
        "title": title,
        "short": short,
        "sections": [*before, *blocks.faults_section(list(map(str, faults))), *own, *after],
        "footer": f"{program_and_version()} {_FOOTER}",
    }
    return page_by_script(data, ["cohort.js"], ["cohort.css"])


def _cohort(systems: Sequence[System], prices: Prices, target: Target | None) -> list[Section]:
    """The sections; one that fails is left out, and noted."""
    makers: tuple[tuple[str, Callable[[], list[Section]]], ...] = (
        ("models", partial(_models, systems, prices, target)),
        ("the first by each measure", partial(_first, systems, prices, target)),
        ("load tests", partial(_load_tests, systems)),
        ("accuracy and outputs", partial(_results, systems, prices, target)),
        ("measures beside each other", partial(multiples, systems)),
        ("classes and similarity", partial(_alike, systems)),
        ("models across systems", partial(_across, systems)),
    )
    return [each for what, make in makers for each in attempt(f"The section on {what}", make, lambda _: [])]


def _models(systems: Sequence[System], prices: Prices, target: Target | None) -> list[Section]:
    links = {"model": [s.member.report for s in systems][:_MAX_ROWS]}
    models = _cut(tables.models(systems, prices, target))
    rows = blocks.table(models, name="models", left_out=_omitted_rows(len(systems)), links=links)
    return [blocks.section("models", "Models", "Models and systems", _MODELS, [rows])]


def _first(systems: Sequence[System], prices: Prices, target: Target | None) -> list[Section]:
    first = tables.top(systems, prices, target)
    if first.table.is_empty():
        return []
    means = "The first models by each measure that at least two of them have."
    drawn = [_tops(first, tables.models(systems, prices, target))]
    return [blocks.section("top", "First by each measure", "First by each measure", means, drawn)]


def _load_tests(systems: Sequence[System]) -> list[Section]:
    tests = tables.load_tests(systems)
    if tests.table.is_empty():
        return []
    rows = blocks.table(_cut(tests), name="load_tests", left_out=_omitted_rows(tests.table.height))
    return [blocks.section("load_tests", "Load tests", "MLPerf LoadGen tests", _LOAD_TESTS, [rows])]


def _across(systems: Sequence[System]) -> list[Section]:
    across = tables.across(systems)
    if across.table.is_empty():
        return []
    rows = blocks.table(_cut(across), name="systems", left_out=_omitted_rows(across.table.height))
    title = "One model across systems and frameworks"
    return [blocks.section("systems", "Across systems", title, _ACROSS, [rows])]


def _results(systems: Sequence[System], prices: Prices, target: Target | None) -> list[Section]:
    """Accuracy and time to a target, and outputs of one model beside each other, where traces say any."""
    of_target = f" Target: {target.text}." if target else " xsp cohort --target METRIC=VALUE asks when it was reached."
    every = (
        ("accuracy", "Accuracy", "Accuracy and time to a target", f"{_ACCURACY}{of_target}",
         tables.accuracies(systems, prices, target)),
        ("outputs", "Outputs", "Outputs of one model", _OUTPUTS, tables.outputs(systems)),
    )  # fmt: skip
    return [
        blocks.section(
            name, label, title, means, [blocks.table(_cut(r), name=name, left_out=_omitted_rows(r.table.height))]
        )
        for name, label, title, means, r in every
        if r.table.height
    ]


def _cut(result: Result) -> Result:
    """What a page can hold of a table."""
    return replace(result, table=result.table.head(_MAX_ROWS))


def _omitted_rows(rows: int) -> str | None:
    which = f"The first {count(_MAX_ROWS)} of {count(rows)} rows; xsp cohort -f csv writes all."
    return which if rows > _MAX_ROWS else None


def _alike(systems: Sequence[System]) -> list[Section]:
    """Time by class of kernels, models that are alike beside each other; then the tree of those with operators."""
    mixed = [s for s in systems if s.facts.mix.shares]
    others = [s for s in systems if s.facts.mix.class_shares and not s.facts.mix.shares]
    leaves = len(mixed) + len(others)
    if leaves > _MAX_LEAVES:
        pairs = " `xsp cohort -f csv` writes every pair." if len(mixed) <= tables.MAX_COMPARED else ""
        reason = blocks.text(f"{count(leaves)} models are more than a tree can show.{pairs}")
        return [blocks.section("mix", "Classes", "Time by class of kernels", _MIX, [reason])]
    joins = linkage(1 - cosines([s.facts.mix.shares for s in mixed])) if mixed else []
    order = leaf_order(joins, len(mixed)) if mixed else []
    classified = [s for s in (*(mixed[n] for n in order), *others) if s.facts.mix.class_shares]
    sections = []
    if classified:
        bars = mixes(classified)
        sections.append(blocks.section("mix", "Classes", "Time by class of kernels", _MIX, [bars]))
    if len(mixed) >= _PAIR:
        tree = dendrogram(mixed, joins, order)
        sections.append(blocks.section("similar", "Similarity", "Which models are alike", _TREE, [tree]))
    return sections


def _tops(first: Result, models: Result) -> Block:
    columns = {c.name: c for c in models.columns}
    items = []
    for measure in first.table["measure"].unique(maintain_order=True):
        rows = first.table.filter(pl.col("measure") == measure).iter_rows(named=True)
        named = [(clean(_system_name(row)), clean(_value(columns[measure], row["value"]))) for row in rows]
        items.append({"title": _TITLES[measure], "rows": named})
    return {"type": "tops", "items": items}


_TITLES: Mapping[str, str] = {
    "throughput_per_s": "Most inputs per second",
    "latency_ns": "Shortest step",
    "gpu_share": "Largest GPU share",
    "gpu_utilisation_share": "Highest GPU utilisation",
    "convolution_share": "Most time in convolutions",
    "memory_bound_share": "Most memory-bound layers",
    "peak_memory_bytes": "Most memory",
    "cost_per_1k_inputs": "Cheapest",
    "time_to_target_ns": "First to reach the target",
    "cost_to_target": "Cheapest way to the target",
}


def _system_name(row: Mapping[str, object]) -> str:
    return " on ".join(str(row[k]) for k in ("model", "system") if row[k])


def _value(column: Column, value: float) -> str:
    if is_share(column):
        return share(value)
    scale = scale_of(column, [value])
    return quantity(value, column.unit) if column.unit in {"ns", "byte"} else f"{number(value, scale)} {scale.unit}"


def _short(systems: Sequence[System], prices: Prices) -> list[str]:
    """What the cohort is, in two or three sentences."""
    if not systems:
        return []
    models = {s.facts.model for s in systems}
    names = sorted({s.facts.system for s in systems if s.facts.system})
    traces = sum(len(s.members) for s in systems)
    on = f" on {', '.join(names)}" if 0 < len(names) <= _PAIR else f" on {len(names)} systems" if names else ""
    sentences = [f"{_count(len(models), 'model')}{on}, from {_count(traces, 'trace')}."]
    timed = [s for s in systems if s.best]
    if len(timed) >= _PAIR:
        quick = min(timed, key=lambda s: s.best[0].latency_ns if s.best else 0.0)
        slow = max(timed, key=lambda s: s.best[0].latency_ns if s.best else 0.0)
        times = [duration(s.best[0].latency_ns) for s in (quick, slow) if s.best]
        sentences.append(f"A step takes from {times[0]} ({quick.label}) to {times[1]} ({slow.label}).")
    shares = [s.facts.gpu_share for s in systems if s.facts.gpu_share is not None]
    if shares:
        sentences.append(f"Devices work for {share(min(shares))} to {share(max(shares))} of their time.")
    if prices.per_hour:
        sentences.append(f"Costs are in {prices.currency or 'the currency of the prices given'}.")
    return [" ".join(sentences)]


def _count(number_of: int, noun: str) -> str:
    return f"{count(number_of)} {noun}{'' if number_of == 1 else 's'}"
