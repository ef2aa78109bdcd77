"""MLModelScope's trace levels and operation names as levels and kinds of spans, and evaluations at several levels."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.files.values import finite, integer, text
from xsp_ingest.formats.jaeger.document import JaegerTrace, parents, tags_of
from xsp_ingest.link.range_rules import one_of
from xsp_ingest.staging.raw import RunLevel
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan, Log
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = [
    "DEVICE_WORK",
    "FRAMEWORK_MEMORY",
    "LEFT_OUT",
    "SOURCE",
    "Meaning",
    "depth_of",
    "evaluations",
    "is_level",
    "meaning",
    "metrics_of_logs",
    "with_levels",
]

DEVICE_WORK: Mapping[str, Kind] = {
    "gpu_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
}
"""Operation names of executions on the device; their trace level has been HARDWARE and SYSTEM_LIBRARY."""
LEFT_OUT: Mapping[str, str] = {"gpu_overhead": "it is the profiler's own work"}
"""Operation names that are known and not read, with the reason."""
_LEVELS: Mapping[str, Level] = {
    "NO_TRACE": Level.APPLICATION,  # NO and FULL are thresholds; a span that carries one says nothing of its level
    "FULL_TRACE": Level.APPLICATION,
    "APPLICATION_TRACE": Level.APPLICATION,
    "MODEL_TRACE": Level.MODEL,
    "FRAMEWORK_TRACE": Level.LAYER,
    "LIBRARY_TRACE": Level.LIBRARY,
    "ML_LIBRARY_TRACE": Level.LIBRARY,
    "SYSTEM_LIBRARY_TRACE": Level.RUNTIME,
    "HARDWARE_TRACE": Level.RUNTIME,
}
_DEPTHS = {
    f"{name}_TRACE": depth
    for depth, name in enumerate(
        ("NO", "APPLICATION", "MODEL", "FRAMEWORK", "ML_LIBRARY", "LIBRARY", "SYSTEM_LIBRARY", "HARDWARE", "FULL")
    )
}
_STEPS = (r"^(?i:c_predict)$",)
_KIND = {Level.LIBRARY: Kind.CALL, Level.RUNTIME: Kind.CALL}
_LAYER_TAGS = ("layer_sequence_index", "op_name")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A span's level and kind, its name, and whether its own trace level was a known one (None: it had none)."""

    level: Level
    kind: Kind
    name: str
    has_known_level: bool | None


def is_level(value: object) -> bool:
    """Whether it is one of the tracer's levels."""
    return value in _LEVELS


def depth_of(trace_level: str) -> int:
    """How deep a level is, among those of the tracer from NO_TRACE on; of one that it does not have 0."""
    return _DEPTHS.get(trace_level, 0)


def meaning(operation: str, tags: Mapping[str, Any], options: Options) -> Meaning:
    """What a span is; a span of no known level stays, as a range of the application."""
    trace_level = text(tags.get("trace_level"))
    has_known_level = None if trace_level is None else is_level(trace_level)
    if operation in DEVICE_WORK:
        return Meaning(Level.KERNEL, DEVICE_WORK[operation], operation, has_known_level)
    level = _LEVELS.get(trace_level or "", Level.APPLICATION)
    names = (operation, text(tags.get("step_name")) or "")
    if options.model_ranges and any(re.search(one_of(options.model_ranges), name) for name in names):
        return Meaning(Level.MODEL, Kind.STEP, operation, has_known_level)
    if level is Level.MODEL and not options.model_ranges and re.search(one_of(_STEPS), operation):
        return Meaning(level, Kind.STEP, operation, has_known_level)
    if level is Level.LAYER and not _is_layer(operation, tags, options):
        return Meaning(Level.OPERATOR, Kind.OPERATOR, operation, has_known_level)
    if level is Level.RUNTIME:
        operation = text(tags.get("function_name")) or operation
    if level is Level.APPLICATION:  # its later steps bear each other's names, and are what the tag says
        operation = text(tags.get("step_name")) or operation
    return Meaning(level, _KIND.get(level, Kind.RANGE), operation or "(no name)", has_known_level)


def _is_layer(operation: str, tags: Mapping[str, Any], options: Options) -> bool:
    if options.layer_ranges:
        return bool(re.search(one_of(options.layer_ranges), operation))
    return any(tag in tags for tag in _LAYER_TAGS)


# GPU metrics that MLModelScope wrote as log fields: CUPTI's names, with the units CUPTI documents for them.
SOURCE = "cupti"
FRAMEWORK_MEMORY = {
    "temp_memory_size": "host_temporary_bytes",
    "persistent_memory_size": "host_persistent_bytes",
    "device_temp_memory_size": "device_temporary_bytes",
    "device_persistent_memory_size": "device_persistent_bytes",
}
"""Tags of a layer, in bytes, and the metrics they become."""
_NOT_METRICS = frozenset({"event", "message", "level", "error", "error.kind", "error.object", "stack", "timestamp"})
_PERCENT = re.compile(r"(?:_efficiency|_hit_rate|_utilization_pct)\Z")
_UNITS = (
    (re.compile(r"^flop_count_"), "flop"),
    (re.compile(r"_bytes\Z"), "byte"),
    (re.compile(r"_throughput\Z"), "byte/s"),
    (re.compile(r"^(?:achieved_occupancy|ipc|issued_ipc)\Z"), "1"),
)


def metrics_of_logs(logs: Sequence[Log] | None) -> list[tuple[str, float, str]]:
    """Name, value and unit of each metric in the logs, in their order; one logged several times is the mean.

    A metric that needs several passes is logged once a pass. Percentages become shares of 0..1.
    """
    values: dict[str, list[float]] = {}
    for log in logs or ():
        for one in log.fields:
            value = finite(one.value)
            if value is not None and one.key not in _NOT_METRICS:
                values.setdefault(one.key, []).append(value)
    return [_at_rest(name, sum(samples) / len(samples)) for name, samples in values.items()]


def _at_rest(name: str, value: float) -> tuple[str, float, str]:
    if _PERCENT.search(name):
        return name, value / 100, "1"
    return name, value, next((unit for pattern, unit in _UNITS if pattern.search(name)), "unknown")


# Evaluations at several levels: splits a trace by how deep each was profiled, and says which level each run is of.

_TAG = "evaluation_trace_level"
_Key = tuple[str, bool]  # trace level, and whether kernels were counted


def evaluated_levels(trace: JaegerTrace) -> list[str]:
    """The levels at which the trace says that its model was evaluated, each once, in order of appearance."""
    return list(dict.fromkeys(level for span in trace.spans if (level := _level(span)) is not None))


def evaluations(trace: JaegerTrace) -> list[JaegerTrace]:
    """The trace, or where it holds evaluations at several levels a trace for each, in order of their first span.

    A span goes with the tagged span that it lies in. Outside of these it goes with those inside of it or, where there
    are none, inside of what holds it, if they are of one level; else with the last tagged span that had begun.
    """
    if not evaluated_levels(trace):
        return [trace]
    tree = _Tree(trace.spans, parents(trace.spans)[0])
    keys_by_tagged = _keys(tree)
    if len(set(keys_by_tagged.values())) <= 1:
        return [trace]
    keys = _spread(tree, keys_by_tagged)
    parts: dict[_Key, list[JaegerSpan]] = defaultdict(list)
    for i in sorted(range(len(keys)), key=tree.start_of):
        span, above = trace.spans[i], tree.parent[i]
        if above >= 0 and keys[above] != keys[i]:  # several evaluations lie in a span that is in one of them only
            span.references, span.parentSpanID = None, ""
        parts[keys[i]].append(span)
    return [JaegerTrace(spans, trace.traceID, trace.processes) for spans in parts.values()]


@dataclass(frozen=True, slots=True)
class _Tree:
    """Spans, and the position of each one's parent or -1."""

    spans: Sequence[JaegerSpan]
    parent: Sequence[int]

    def start_of(self, i: int) -> int:
        return self.spans[i].startTime or 0

    def outwards(self, i: int) -> Iterator[int]:
        """The span, its parent, and so on."""
        while i >= 0:
            yield i
            i = self.parent[i]

    def outer_first(self) -> Iterator[int]:
        inside: dict[int, list[int]] = defaultdict(list)
        for i, above in enumerate(self.parent):
            inside[above].append(i)
        open_spans = inside[-1][::-1]
        while open_spans:
            i = open_spans.pop()
            yield i
            open_spans += inside.pop(i, [])


def _level(span: JaegerSpan) -> str | None:
    return text(tags_of(span.tags).get(_TAG))


def _keys(tree: _Tree) -> dict[int, _Key]:
    """The key of each tagged span; launches of a run with counters log them, wherever they hang."""
    levels = {i: level for i, span in enumerate(tree.spans) if (level := _level(span)) is not None}
    begun = _Begun(tree, sorted(levels, key=tree.start_of))
    counted = {
        next((each for each in tree.outwards(i) if each in levels), begun.last(i))
        for i, span in enumerate(tree.spans)
        if metrics_of_logs(span.logs)
    }
    return {i: (level, i in counted) for i, level in levels.items()}


def _spread(tree: _Tree, keys_by_tagged: Mapping[int, _Key]) -> list[_Key]:
    """The key of every span."""
    begun = _Begun(tree, sorted(keys_by_tagged, key=tree.start_of))
    inside: dict[int, set[_Key]] = defaultdict(set)
    for i, key in keys_by_tagged.items():
        for outer in tree.outwards(i):
            inside[outer].add(key)
    keys: dict[int, _Key] = {}
    for i in tree.outer_first():
        above = tree.parent[i]
        sure = keys_by_tagged.get(i) or (keys[above] if above in keys and len(inside[above]) <= 1 else None)
        only = next(iter(inside[i])) if len(inside[i]) == 1 else None
        keys[i] = sure or only or keys_by_tagged[begun.last(i)]
    return [keys[i] for i in range(len(tree.spans))]


class _Begun:
    """Which of the tagged spans had begun last when another did."""

    def __init__(self, tree: _Tree, tagged: Sequence[int]) -> None:
        self._tree, self._tagged = tree, tagged
        self._starts = [tree.start_of(i) for i in tagged]

    def last(self, i: int) -> int:
        """The first of all where none had."""
        return self._tagged[max(bisect_right(self._starts, self._tree.start_of(i)) - 1, 0)]


# Whether the runs of a file are the same work at several levels, and which level each is of.
_ROLES = ("model", "layers", "kernels", "counters")


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, what it is taken for (None: no model ran in it) and what tells whether others are of the same work."""

    raw: RawTrace
    role: str | None
    levels: Sequence[str]
    batch_sizes: frozenset[int]


def with_levels(traces: Sequence[JaegerTrace], raws: Sequence[RawTrace]) -> list[RawTrace]:
    """The runs, least profiled first and each with its level where they are of one work; else the ledger says why not.

    A level is what the run holds: the tag may ask for kernels on a machine that has none.
    """
    runs = [_run(trace, raw) for trace, raw in zip(traces, raws, strict=True)]
    evaluated = [run for run in runs if run.role is not None]
    if len({(run.role, *run.levels) for run in evaluated}) <= 1:
        return list(raws)
    if doubts := _doubts(evaluated):
        detail = f"{LedgerKind.LEVELS_MIXED.sentence}; they were not merged, since {doubts}"
        finding = Finding(LedgerKind.LEVELS_MIXED, detail, len(evaluated))
        return [replace(raws[0], findings=(*raws[0].findings, finding)), *raws[1:]]
    has_kernels = any(run.role == "kernels" for run in evaluated)
    return [_with_role(run, has_kernels=has_kernels) for run in sorted(runs, key=_depth)]


def _run(trace: JaegerTrace, raw: RawTrace) -> _Run:
    sizes = (integer(tags_of(span.tags).get("batch_size")) for span in trace.spans)
    return _Run(raw, _role(raw), evaluated_levels(trace), frozenset(size for size in sizes if size))


def _role(raw: RawTrace) -> str | None:
    """By the deepest level that was recorded; None where no step of a model was."""
    spans = raw.tables["spans"].select(pl.col("level", "kind").cast(pl.String))
    if not (spans["kind"] == str(Kind.STEP)).any():
        return None
    if (spans["level"] == str(Level.KERNEL)).any():
        counted = (raw.tables["metrics"]["source"].cast(pl.String) == SOURCE).any()
        return "counters" if counted else "kernels"
    return "layers" if spans["level"].is_in([str(Level.LAYER), str(Level.OPERATOR)]).any() else "model"


def _doubts(runs: Sequence[_Run]) -> str:
    """Why they may be of different work; empty where nothing says so and something says that they are of the same."""
    models = {run.raw.facts.model for run in runs}
    differing = {
        "models": models - {None},
        "frameworks": {run.raw.facts.framework for run in runs} - {None},
        "batch sizes": frozenset[int]().union(*(run.batch_sizes for run in runs)),
    }
    for what, values in differing.items():
        if len(values) > 1:
            return f"they are of different {what}: {', '.join(sorted(map(str, values)))}"
    if None in models and not all(run.levels for run in runs):
        return "neither `evaluation_trace_level` nor the model's name says in each that they are of the same work"
    return ""


def _depth(run: _Run) -> tuple[int, int]:
    role = len(_ROLES) if run.role is None else _ROLES.index(run.role)
    return role, max(map(depth_of, run.levels), default=0)


def _with_role(run: _Run, *, has_kernels: bool) -> RawTrace:
    """A run with counters gives the kernels' times, too, where no other run does."""
    if run.role is None:
        return run.raw
    role = "kernels" if run.role == "counters" and not has_kernels else run.role
    evidence = f"evaluation_trace_level {', '.join(run.levels)}" if run.levels else "the deepest level it holds"
    if run.role == "counters":
        evidence += ", counters in its logs"
    return replace(run.raw, facts=replace(run.raw.facts, level=RunLevel(role, evidence)))
