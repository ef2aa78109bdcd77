"""The tables of a cohort (B13) as results, so that every renderer takes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from xsp_analyze.cohort.facts import CLASSES
from xsp_analyze.cohort.quality import NO_PRICES, final, time_to
from xsp_analyze.core import Analysis, Column, Result, Role
from xsp_analyze.faults import attempt
from xsp_analyze.frames.outputs import by_name, distance, input_match
from xsp_model import XspError
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_analyze.cohort.cohort import Member, System
    from xsp_analyze.cohort.quality import Measure, Prices, Target
    from xsp_analyze.frames.model_time import LoadTest
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Floats

__all__ = [
    "FRAMEWORK",
    "KEYS",
    "MAX_COMPARED",
    "MODEL",
    "SYSTEM",
    "TOP",
    "Join",
    "accuracies",
    "across",
    "cosines",
    "groups",
    "leaf_order",
    "linkage",
    "load_tests",
    "models",
    "outputs",
    "result_of",
    "similarity",
    "tables",
    "top",
]

MODEL = Column("model", pl.String(), "The model, as its traces name it.", role=Role.KEY)
SYSTEM = Column("system", pl.String(), "The devices it ran on; null: no file names them.", role=Role.KEY)
FRAMEWORK = Column("framework", pl.String(), "Framework and version; null: no file names it.", role=Role.KEY)
KEYS = (MODEL, SYSTEM, FRAMEWORK)


def result_of(identity: str, title: str, columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> Result:
    """The rows as an answer that every renderer takes."""
    table = pl.DataFrame(list(rows), schema={c.name: c.type_of(averaged=True) for c in columns}, orient="row")
    ledger = pl.DataFrame(schema=pl.Schema(TABLES["ledger"].schema))
    return Result(Analysis(identity, title, (), columns, _of_many), table, columns, lambda: ledger)


def _of_many(frames: StepView) -> pl.LazyFrame:
    raise XspError(f"this analysis is of many traces, not of {frames.trace.origin}", advice="Use xsp cohort")


# Accuracy, time and cost to a target, and how far the outputs of one model's traces are from each other, as tables.

_ACCURACIES = (
    *KEYS,
    Column("trace", pl.String(), "The trace.", role=Role.KEY),
    Column("metric", pl.String(), "What was measured.", role=Role.KEY),
    Column("dataset", pl.String(), "On what; null: the run does not say.", role=Role.KEY),
    Column("value", pl.Float64(), "What the run ended with, else the last point of its training curve."),
    Column("value_unit", pl.String(), "Its unit, where the run says.", role=Role.LABEL),
    Column("best_value", pl.Float64(), "The best of all points."),
    Column("sample_count", pl.Int64(), "Samples it was measured on; null: the run does not say."),
    Column("curve_points", pl.Int64(), "Points of the training curve."),
    Column("target", pl.Float64(), "What it is to reach, as given."),
    Column("time_to_target_ns", pl.Int64(), "When the curve first reaches it; null: never, or no curve.", "ns"),
    Column("cost_to_target", pl.Float64(), "That time at the system's price per hour."),
)
_OUTPUTS = (
    MODEL,
    Column("trace", pl.String(), "The trace.", role=Role.KEY),
    Column("output", pl.String(), "What came out of a step.", role=Role.KEY),
    Column("reference", pl.String(), "The trace that it is compared with: the model's first that has any."),
    Column("framework", pl.String(), "Framework and version of the trace.", role=Role.LABEL),
    Column("reference_framework", pl.String(), "Those of the reference.", role=Role.LABEL),
    Column("dtype", pl.String(), "Type of the output's elements.", role=Role.LABEL),
    Column("max_abs_difference", pl.Float64(), "Largest difference of the elements compared."),
    Column("relative_l2", pl.Float64(), "L2 norm of the difference over the reference's."),
    Column("cosine", pl.Float64(), "Cosine of the two as vectors."),
    Column("top1_agreement_share", pl.Float64(), "Rows whose largest element is the same one."),
    Column("compared_count", pl.Int64(), "Elements compared; null: none."),
    Column("basis", pl.String(), "identical bytes, sampled values or checksums only.", role=Role.LABEL),
    Column("input_match", pl.String(), "Whether both were given the same weights and inputs.", role=Role.LABEL),
)


def accuracies(systems: Sequence[System], prices: Prices = NO_PRICES, target: Target | None = None) -> Result:
    """One row a trace, metric and dataset, in the order of models."""
    rows = [row for system in systems for member in system.members for row in _rows_of(system, member, prices, target)]
    return result_of("B13.accuracy", "accuracy and time to a target", _ACCURACIES, rows)


def _rows_of(system: System, member: Member, prices: Prices, target: Target | None) -> Iterator[dict[str, Any]]:
    measures = member.facts.accuracies
    for (metric, dataset), last in final(measures).items():
        own = [m for m in measures if (m.metric, m.dataset) == (metric, dataset)]
        values = [m.value for m in own]
        aimed = target if target and target.metric.casefold() == metric.casefold() else None
        reached = time_to(own, aimed) if aimed else None
        yield {
            "model": system.label,
            "system": member.facts.system,
            "framework": member.facts.framework,
            "trace": member.name,
            "metric": metric,
            "dataset": dataset,
            "value": last.value,
            "value_unit": last.unit,
            "best_value": max(values) if last.more_is_better else min(values),
            "sample_count": last.sample_count,
            "curve_points": sum(m.time_ns is not None for m in own) or None,
            "target": aimed.value if aimed else None,
            "time_to_target_ns": reached,
            "cost_to_target": prices.of_time(member.facts.system, reached),
        }


def outputs(systems: Sequence[System]) -> Result:
    """One row an output of every trace but a model's first that has any, compared with that one's."""
    first: dict[str, Member] = {}
    rows: list[dict[str, Any]] = []
    for member in sorted((m for s in systems for m in s.members), key=lambda m: (m.facts.model, m.name, m.identity)):
        if not by_name(member.facts.tensors):
            continue
        reference = first.setdefault(member.facts.model, member)
        if reference is not member:
            rows += _apart(reference, member)
    return result_of("B13.outputs", "outputs of one model", _OUTPUTS, rows)


def _apart(reference: Member, member: Member) -> Iterator[dict[str, Any]]:
    same_inputs = input_match(reference.facts.tensors, member.facts.tensors)
    theirs = by_name(reference.facts.tensors)
    for name, tensor in by_name(member.facts.tensors).items():
        apart = distance(theirs[name], tensor) if name in theirs else None
        if apart is not None:
            yield {
                "model": member.facts.model,
                "trace": member.name,
                "output": name,
                "reference": reference.name,
                "framework": member.facts.framework,
                "reference_framework": reference.facts.framework,
                "dtype": tensor.dtype,
                "max_abs_difference": apart.max_abs_difference,
                "relative_l2": apart.relative_l2,
                "cosine": apart.cosine,
                "top1_agreement_share": apart.top1_agreement,
                "compared_count": apart.value_count,
                "basis": str(apart.basis),
                "input_match": str(same_inputs),
            }


# How alike models are, and which join first: cosines of their mixes, and a tree of average linkage.


@dataclass(frozen=True, slots=True)
class Join:
    """Two clusters become one, at a distance. Leaves are numbered from 0, joins after them in their order."""

    first: int
    second: int
    distance: float
    size: int


def cosines(vectors: Sequence[Mapping[str, float]]) -> Floats:
    """Cosine of every pair (n x n, 0..1 for shares); 0 beside a vector that is empty, and 1 of each with itself."""
    names = sorted({name for vector in vectors for name in vector})
    rows = [[vector.get(name, 0.0) for name in names] for vector in vectors]
    table = np.array(rows, dtype=float).reshape(len(vectors), len(names))
    norms = np.linalg.norm(table, axis=1)
    units = table / np.where(norms > 0, norms, 1)[:, None]
    similarity: Floats = np.clip(units @ units.T, 0.0, 1.0)
    np.fill_diagonal(similarity, 1.0)
    return similarity


def linkage(distances: Floats) -> list[Join]:
    """Joins of the closest clusters until one is left; the distance of two is the mean over pairs of their leaves.

    Average linkage (UPGMA), Sokal and Michener 1958. Of equal distances the lowest numbers join first. A few hundred
    rows at most: each join looks at all pairs.
    """
    count = len(distances)
    between = distances.astype(float).copy()
    np.fill_diagonal(between, np.inf)
    number, size = list(range(count)), [1] * count
    joins: list[Join] = []
    for step in range(count - 1):
        a, b = divmod(int(np.argmin(between)), count)
        a, b = min(a, b), max(a, b)
        first, second = sorted((number[a], number[b]))
        joins.append(Join(first, second, float(between[a, b]), size[a] + size[b]))
        mean = (between[a] * size[a] + between[b] * size[b]) / (size[a] + size[b])
        between[a], between[:, a] = mean, mean
        between[b], between[:, b] = np.inf, np.inf
        between[a, a] = np.inf
        number[a], size[a] = count + step, size[a] + size[b]
    return joins


def leaf_order(joins: Sequence[Join], count: int) -> list[int]:
    """The leaves so that every cluster's stand side by side, in the order in which the tree is drawn."""
    if not joins:
        return list(range(count))
    order: list[int] = []
    waiting = [count + len(joins) - 1]
    while waiting:
        node = waiting.pop()
        if node < count:
            order.append(node)
        else:
            waiting += [joins[node - count].second, joins[node - count].first]
    return order


TOP = 5
"""How many models `top` names for each measure."""
MAX_COMPARED = 1_000
"""Pairs are compared in cohorts of so many models at most; of more there are too many to read."""
_PAIR = 2
_NS_PER_S = 1e9
_MEASURES: tuple[Column, ...] = (
    Column("batch_sizes", pl.String(), "Batch sizes that were measured; null: unknown.", role=Role.LABEL),
    Column("optimal_batch", pl.Int64(), "The first whose doubling raises throughput by 5 % or less; null: not swept."),
    Column("batch_size", pl.Int64(), "The one that this row stands for: the optimal, else the fastest."),
    Column("latency_ns", pl.Float64(), "Of a step at that batch size.", "ns"),
    Column("single_latency_ns", pl.Float64(), "Of one input at a time; null: batch size 1 was not measured.", "ns"),
    Column("throughput_per_s", pl.Float64(), "Inputs per second at that batch size.", "1/s"),
    Column(
        "profiled_batch_size",
        pl.Int64(),
        "The one that shares, layers, rooflines and memory are of, as the trace was profiled; null: unknown.",
    ),
    Column(
        "gpu_share",
        pl.Float64(),
        "Time in which the devices worked over the time of all of them (A15); of a profile of levels the durations of"
        " kernels over its latency, above 1 where several streams or devices work at once.",
    ),
    Column("device_count", pl.Int64(), "Devices that the share is of."),
    Column(
        "gpu_utilisation_share",
        pl.Float64(),
        "Time in which the device was active over time elapsed (Zhu et al., IISWC 2018).",
    ),
    Column(
        "fp32_utilisation_share",
        pl.Float64(),
        "FP32 flops over peak rate times active time (Zhu et al., IISWC 2018); above 1 counts or peak are wrong.",
    ),
    Column("fp32_coverage", pl.Float64(), "Device time whose flops were counted, of all of it."),
    Column("dominant_type", pl.String(), "The layer type that most of the layers' latency goes to.", role=Role.LABEL),
    Column("dominant_share", pl.Float64(), "Its part of the latency of all layers."),
    Column("convolution_share", pl.Float64(), "Part of the layers' latency in layers with `conv` in their type."),
    Column(
        "bound",
        pl.String(),
        "memory or compute, in FP32; without counters in the precision with most modelled flop; null: unknown.",
        role=Role.LABEL,
    ),
    Column(
        "arithmetic_intensity",
        pl.Float64(),
        "FP32 flop per byte of device memory traffic; without counters modelled.",
        "flop/byte",
    ),
    Column("memory_bound_share", pl.Float64(), "Layers left of the roof's ridge, of those whose place is known."),
    Column("peak_memory_bytes", pl.Int64(), "Most memory allocated at once.", "byte"),
    Column("peak_memory_place", pl.String(), "device or host: whose memory that is.", role=Role.LABEL),
    Column("attributed_share", pl.Float64(), "Device time that belongs to a layer."),
    Column("load_test", pl.String(), "The MLPerf LoadGen test.", role=Role.LABEL),
    Column("load_test_valid", pl.Boolean(), "Whether LoadGen found the test valid; null: it did not judge."),
    Column("load_test_per_s", pl.Float64(), "Samples per second that LoadGen states.", "1/s"),
    Column("p99_latency_ns", pl.Float64(), "99th percentile of latency that LoadGen states.", "ns"),
    Column("cost_per_1k_inputs", pl.Float64(), "At the row's throughput, by the prices given."),
    Column("accuracy_metric", pl.String(), "What results were measured by, and on what.", role=Role.LABEL),
    Column("accuracy", pl.Float64(), "What a trace of the row ended with, in the metric's own unit."),
    Column("time_to_target_ns", pl.Int64(), "When its training curve first reaches the target given.", "ns"),
    Column("cost_to_target", pl.Float64(), "That time, by the prices given."),
    Column("trace", pl.String(), "The trace that the row stands for.", role=Role.LABEL),
)
_TOP_OF = {  # measure -> whether more is first
    "throughput_per_s": True,
    "latency_ns": False,
    "gpu_share": True,
    "gpu_utilisation_share": True,
    "convolution_share": True,
    "memory_bound_share": True,
    "peak_memory_bytes": True,
    "cost_per_1k_inputs": False,
    "time_to_target_ns": False,
    "cost_to_target": False,
}


def tables(systems: Sequence[System], prices: Prices = NO_PRICES, target: Target | None = None) -> list[Result]:
    """Every table that the cohort has rows for, the one over all models first."""
    priced = systems, prices, target
    every = (
        ("models and systems", partial(models, *priced)),
        ("the first by each measure", partial(top, *priced)),
        ("load tests", partial(load_tests, systems)),
        ("accuracies", partial(accuracies, *priced)),
        ("outputs", partial(outputs, systems)),
        ("time by class of kernels", partial(groups, systems)),
        ("similarity", partial(similarity, systems)),
        ("models across systems", partial(across, systems)),
    )
    made = [attempt(f"The table of {what}", make, lambda _: None) for what, make in every]
    return [each for n, each in enumerate(made) if each is not None and (n == 0 or each.table.height)]


def models(systems: Sequence[System], prices: Prices = NO_PRICES, target: Target | None = None) -> Result:
    """One row a model, system and framework, in that order."""
    rows = [_row(system, prices, target) for system in systems]
    return result_of("B13", "models and systems", (*KEYS, *_MEASURES), rows)


def _row(system: System, prices: Prices, target: Target | None = None) -> dict[str, Any]:
    facts, speed = system.facts, system.best[0] if system.best else None
    sizes = [str(s.batch_size) for s, _ in system.speeds if s.batch_size is not None]
    test = next((m.facts.load_test for m in system.members if m.facts.load_test), None)
    return {
        "model": system.label,
        "system": facts.system,
        "framework": facts.framework,
        "batch_sizes": ", ".join(sizes) or None,
        "optimal_batch": system.optimal_batch,
        "batch_size": speed.batch_size if speed else None,
        "latency_ns": speed.latency_ns if speed else None,
        "single_latency_ns": system.single_latency_ns,
        "throughput_per_s": speed.throughput_per_s if speed else None,
        "profiled_batch_size": facts.profiled_batch_size,
        "gpu_share": facts.gpu_share,
        "device_count": facts.device_count,
        "gpu_utilisation_share": facts.utilisation.gpu,
        "fp32_utilisation_share": facts.utilisation.fp32,
        "fp32_coverage": facts.utilisation.fp32_coverage,
        "dominant_type": facts.dominant_type,
        "dominant_share": facts.dominant_share,
        "convolution_share": facts.convolution_share,
        "bound": facts.bound,
        "arithmetic_intensity": facts.intensity,
        "memory_bound_share": _share(facts.memory_bound_layers, facts.layers_under_roof),
        "peak_memory_bytes": facts.peak_memory_bytes,
        "peak_memory_place": facts.peak_memory_place,
        "attributed_share": facts.attributed_share,
        "load_test": test.test if test else None,
        "load_test_valid": test.valid if test else None,
        "load_test_per_s": test.samples_per_s if test else None,
        "p99_latency_ns": test.percentiles_ns.get("p99_00") if test else None,
        "cost_per_1k_inputs": system.cost(prices),
        **_accuracy(system, prices, target),
        "trace": system.member.name,
    }


def _accuracy(system: System, prices: Prices, target: Target | None) -> dict[str, Any]:
    """The target's metric, else the first that a trace of the row says, the row's own trace before the others."""
    others = [m for m in system.members if m is not system.member]
    measures = next((m.facts.accuracies for m in (system.member, *others) if m.facts.accuracies), ())
    last = list(final(measures).values())
    aimed = [m for m in last if target and m.metric.casefold() == target.metric.casefold()]
    shown: Measure | None = next(iter(aimed or last), None)
    reached = time_to(measures, target) if target else None
    return {
        "accuracy_metric": " on ".join(filter(None, (shown.metric, shown.dataset))) if shown else None,
        "accuracy": shown.value if shown else None,
        "time_to_target_ns": reached,
        "cost_to_target": prices.of_time(system.facts.system, reached),
    }


def _share(part: int | None, total: int | None) -> float | None:
    return None if part is None or not total else part / total


def top(systems: Sequence[System], prices: Prices = NO_PRICES, target: Target | None = None) -> Result:
    """One row a measure and place: its first TOP models that have any; measures of fewer than two are left out."""
    ranked = models(systems, prices, target).table
    rows = []
    for measure, more in _TOP_OF.items():
        measured = ranked.filter(pl.col(measure) > 0)
        if measured.height < _PAIR:
            continue
        first = measured.sort(measure, "model", "system", "framework", descending=[more, False, False, False]).head(TOP)
        for rank, row in enumerate(first.iter_rows(named=True), start=1):
            rows.append(
                {"measure": measure, "place": rank, **{c.name: row[c.name] for c in KEYS}, "value": row[measure]}
            )
    columns = (
        Column("measure", pl.String(), "What the models are ordered by.", role=Role.KEY),
        Column("place", pl.Int64(), "1 is the first.", role=Role.KEY),
        *(Column(c.name, c.dtype, c.doc, role=Role.LABEL) for c in KEYS),
        Column("value", pl.Float64(), "In the measure's own unit: ns, bytes, shares of 1."),
    )
    return result_of("B13.top", "first models by each measure", columns, rows)


def load_tests(systems: Sequence[System]) -> Result:
    """One row an MLPerf LoadGen test, by the trace's name: what LoadGen itself says of it."""
    members = sorted((m for s in systems for m in s.members), key=lambda m: (m.name, m.identity))
    rows = [_load_test(member.name, member.facts.load_test) for member in members if member.facts.load_test]
    columns = (
        Column("trace", pl.String(), "The trace.", role=Role.KEY),
        Column("test", pl.String(), "Scenario and mode.", role=Role.LABEL),
        Column("valid", pl.Boolean(), "Whether LoadGen found the test valid; null: it did not judge."),
        Column("broken_rules", pl.String(), "What was not satisfied.", role=Role.LABEL),
        Column("reason", pl.String(), "What LoadGen adds to that."),
        Column("samples_per_s", pl.Float64(), "Completed samples per second, else scheduled ones.", "1/s"),
        Column("target_latency_ns", pl.Float64(), "What queries may take; null: the test had no target.", "ns"),
        Column("target_share", pl.Float64(), "The part of queries that had to be within it."),
        Column("over_target_share", pl.Float64(), "The part of queries that took longer."),
        Column("meets_target", pl.Boolean(), "Whether that percentile of latency is at most the target."),
        *(Column(f"{p}_latency_ns", pl.Float64(), f"{_PERCENTILES[p]} of latency.", "ns") for p in _PERCENTILES),
    )
    return result_of("B13.loadgen", "load tests", columns, rows)


_PERCENTILES = {
    "p50_00": "Median",
    **{f"p{p.replace('.', '_')}": f"{p}th percentile" for p in ("90.00", "95.00", "97.00", "99.00", "99.90")},
}
"""As LoadGen prints them, but its 80th, which only some scenarios have."""


def _load_test(trace: str, test: LoadTest) -> dict[str, Any]:
    return {
        "trace": trace,
        "test": test.test,
        "valid": test.valid,
        "broken_rules": ", ".join(test.broken_rules) or None,
        "reason": test.reason or None,
        "samples_per_s": test.samples_per_s,
        "target_latency_ns": test.target_latency_ns,
        "target_share": test.target_share,
        "over_target_share": test.over_target_share,
        "meets_target": test.meets_target,
        **{f"{p}_latency_ns": test.percentiles_ns.get(p) for p in _PERCENTILES},
    }


def groups(systems: Sequence[System]) -> Result:
    """One row a model that recorded kernels, operators or layers: the share of its time in each class of them."""
    rows = []
    for system in (s for s in systems if s.facts.mix.class_shares):
        by_class = system.facts.mix.class_shares
        shares = {_group_column(name): by_class.get(name, 0.0) for name in CLASSES}
        facts = system.facts
        keys = {"model": system.label, "system": facts.system, "framework": facts.framework}
        rows.append({**keys, "basis": facts.mix.class_basis, **shares})
    columns = (
        *KEYS,
        Column("basis", pl.String(), "What the shares are of.", role=Role.LABEL),
        *(Column(_group_column(name), pl.Float64(), f"Share of time in: {name}.") for name in CLASSES),
    )
    return result_of("B13.mix", "time by class of kernels", columns, rows)


def _group_column(name: str) -> str:
    return f"{name.replace(' ', '_')}_share"


def similarity(systems: Sequence[System]) -> Result:
    """One row a pair of models, most alike first: the cosine of their operator mixes; none above MAX_COMPARED."""
    mixed = [s for s in systems if s.facts.mix.shares]
    mixed = mixed if len(mixed) <= MAX_COMPARED else []
    similar = cosines([s.facts.mix.shares for s in mixed])
    pairs = [
        {
            "model": a.label,
            "system": a.facts.system,
            "other_model": b.label,
            "other_system": b.facts.system,
            "similarity_share": float(similar[i, j]),
        }
        for i, a in enumerate(mixed)
        for j, b in enumerate(mixed)
        if i < j
    ]
    columns = (
        MODEL,
        SYSTEM,
        Column("other_model", pl.String(), "The model it is compared with.", role=Role.KEY),
        Column("other_system", pl.String(), "The devices that one ran on.", role=Role.KEY),
        Column("similarity_share", pl.Float64(), "Cosine of the two vectors of time by operator type: 1 is alike."),
    )
    similar_pairs = sorted(pairs, key=lambda p: (-cast("float", p["similarity_share"]), p["model"], p["other_model"]))
    return result_of("B13.similarity", "similarity by operator mix", columns, similar_pairs)


def across(systems: Sequence[System]) -> Result:
    """One row a system and framework of every model that ran on several, the fastest first.

    `speedup` is its throughput over the slowest's; of traces without batch sizes, the slowest's latency over its own.
    """
    rows = []
    of_model: dict[str, list[System]] = {}
    for system in systems:
        if system.best:
            of_model.setdefault(system.facts.model, []).append(system)
    for same in (s for s in of_model.values() if len({(x.facts.system, x.facts.framework) for x in s}) >= _PAIR):
        speeds = _speeds(same)
        slowest = min((v for v in speeds if v), default=None)
        for speed, one in sorted(zip(speeds, same, strict=True), key=lambda p: (-(p[0] or 0.0), p[1].key)):
            row = _row(one, NO_PRICES)
            keep = (*(c.name for c in KEYS), "batch_size", "latency_ns", "throughput_per_s")
            rows.append({**{k: row[k] for k in keep}, "speedup": speed / slowest if speed and slowest else None})
    columns = (
        *KEYS,
        *(c for c in _MEASURES if c.name in {"batch_size", "latency_ns", "throughput_per_s"}),
        Column("speedup", pl.Float64(), "Over the slowest of the model's rows.", "x"),
    )
    return result_of("B13.systems", "one model across systems and frameworks", columns, rows)


def _speeds(same: Sequence[System]) -> list[float | None]:
    """Inputs per second; steps per second where no trace of the model names a batch size."""
    best = [s.best[0] for s in same if s.best]
    if any(b.batch_size is not None for b in best):
        return [b.throughput_per_s for b in best]
    return [_NS_PER_S / b.latency_ns if b.latency_ns else None for b in best]
