"""From a trace that MLModelScope wrote to staging rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.values import integer, text
from xsp_ingest.formats.jaeger.details import add_copy, add_kernel, add_layer, device_name
from xsp_ingest.formats.jaeger.document import tags_of
from xsp_ingest.formats.jaeger.lanes import HostSpan, lanes
from xsp_ingest.formats.jaeger.levels import LEFT_OUT, Meaning, is_level, meaning
from xsp_ingest.formats.jaeger.metrics import SOURCE, logged
from xsp_ingest.formats.jaeger.references import parents
from xsp_ingest.formats.jaeger.sound import sound_spans
from xsp_ingest.staging.intervals import Rows
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan, JaegerTrace
    from xsp_ingest.ingester import Options

__all__ = ["read_mlmodelscope"]

_NS_PER_US = 1000
_PROCESS = 0  # the files name no operating system's process; the services of a trace are on one machine
_CUT_LENGTHS = frozenset({256, 1024})  # where Jaeger's clients cut texts


@dataclass(slots=True)
class _Reading:
    """The state while a trace is read; every list has one entry a span."""

    spans: Sequence[JaegerSpan]
    tags: list[dict[str, Any]]
    meanings: list[Meaning]
    rows: Rows = field(default_factory=Rows)
    counts: Counter[str] = field(default_factory=Counter)


def read_mlmodelscope(trace: JaegerTrace, options: Options) -> RawTrace:
    """The rows of one trace: microseconds become ns, host spans get lanes for threads, log fields become metrics."""
    timed, findings = sound_spans(trace.spans)
    spans = [span for span in timed if span.operationName not in LEFT_OUT]
    tags = [tags_of(span.tags) for span in spans]
    meanings = [meaning(span.operationName, t, options) for span, t in zip(spans, tags, strict=True)]
    reading = _Reading(spans, tags, meanings)
    parent, lost = parents(spans)
    _add_host(reading, parent)
    _add_device(reading)
    findings += [*lost, *_complaints(reading), _left_out(len(timed) - len(spans))]
    return RawTrace(reading.rows.frames(), _facts(tags), tuple(findings))


def _interval(span: JaegerSpan) -> tuple[int, int]:
    """Start and duration in ns; `sound_spans` left only spans that have both."""
    return (span.startTime or 0) * _NS_PER_US, (span.duration or 0) * _NS_PER_US


def _add_host(reading: _Reading, parent: Sequence[int]) -> None:
    host = [i for i, m in enumerate(reading.meanings) if m.level is not Level.KERNEL]
    index_of = {i: n for n, i in enumerate(host)}
    lane_of, ambiguous = lanes([_host_span(reading, i, index_of.get(parent[i], -1)) for i in host])
    for i, lane in zip(host, lane_of, strict=True):
        span_meaning, tags = reading.meanings[i], reading.tags[i]
        start_ns, duration_ns = _interval(reading.spans[i])
        correlation = integer(tags.get("correlation_id")) if span_meaning.level is Level.RUNTIME else None
        _add_span(reading.rows, i, span_meaning, (start_ns, duration_ns), thread_id=lane, correlation_id=correlation)
        if span_meaning.level is Level.LAYER:
            reading.counts["unreadable_memory"] += not add_layer(reading.rows, i, reading.spans[i], tags)
        elif span_meaning.level is Level.OPERATOR:
            reading.rows.add("operators", row=i)
        if span_meaning.kind is Kind.RANGE:
            text_of = reading.spans[i].operationName
            reading.rows.add("ranges", row=i, text=text_of, style="Annotation")
    reading.counts["ambiguous_lane"] = ambiguous


def _host_span(reading: _Reading, i: int, parent: int) -> HostSpan:
    start_ns, duration_ns = _interval(reading.spans[i])
    return HostSpan(reading.meanings[i].level, start_ns, start_ns + duration_ns, parent)


def _add_span(rows: Rows, row: int, meaning: Meaning, times: tuple[int, int | None], **more: object) -> None:
    rows.add(
        "spans",
        row=row,
        level=str(meaning.level),
        kind=str(meaning.kind),
        name=meaning.name,
        start_ns=times[0],
        duration_ns=times[1],
        process_id=_PROCESS,
        **more,
    )


def _add_device(reading: _Reading) -> None:
    launches = _launches(reading)
    ran: dict[int, list[int]] = {}
    for i, span_meaning in enumerate(reading.meanings):
        if span_meaning.level is not Level.KERNEL:
            continue
        tags = reading.tags[i]
        correlation = integer(tags.get("correlation_id"))
        launch = launches.get(-1 if correlation is None else correlation, {})
        name = device_name(span_meaning.kind, tags, launch)
        reading.counts["cut_name"] += len(name) in _CUT_LENGTHS
        where = {key: integer(tags.get(key)) for key in ("device_id", "context_id", "stream_id")}
        done = Meaning(span_meaning.level, span_meaning.kind, name, span_meaning.has_known_level)
        _add_span(reading.rows, i, done, _interval(reading.spans[i]), correlation_id=correlation, **where)
        (add_kernel if span_meaning.kind is Kind.KERNEL else add_copy)(reading.rows, i, tags, launch)
        _add_metrics(reading, i, i)
        if correlation is not None and span_meaning.kind is Kind.KERNEL:
            ran.setdefault(correlation, []).append(i)
    _add_launch_metrics(reading, ran)


def _launches(reading: _Reading) -> dict[int, Mapping[str, Any]]:
    """The tags of the runtime call of each correlation id; one that names a kernel goes before one that does not."""
    tags_by_id: dict[int, Mapping[str, Any]] = {}
    for span_meaning, tags in zip(reading.meanings, reading.tags, strict=True):
        correlation = integer(tags.get("correlation_id"))
        if (
            span_meaning.level is Level.RUNTIME
            and correlation is not None
            and "kernel" not in tags_by_id.get(correlation, {})
        ):
            tags_by_id[correlation] = tags
    return tags_by_id


def _add_launch_metrics(reading: _Reading, ran: Mapping[int, Sequence[int]]) -> None:
    """Counters stand at the launch and belong to the kernel; one whose execution was not recorded has no duration."""
    extra = len(reading.spans)
    for i, span_meaning in enumerate(reading.meanings):
        span, tags = reading.spans[i], reading.tags[i]
        if span_meaning.level is not Level.RUNTIME or not logged(span.logs):
            continue
        correlation = integer(tags.get("correlation_id"))
        kernels = [] if correlation is None else list(ran.get(correlation, ()))
        if not kernels:
            kernels = [extra]
            extra += 1
            name = device_name(Kind.KERNEL, tags, {})
            unseen = Meaning(Level.KERNEL, Kind.KERNEL, name, has_known_level=True)
            _add_span(reading.rows, kernels[0], unseen, (_interval(span)[0], None), correlation_id=correlation)
            add_kernel(reading.rows, kernels[0], tags, {})
            reading.counts["kernel_without_execution"] += 1
        for kernel in kernels:
            _add_metrics(reading, i, kernel)


def _add_metrics(reading: _Reading, i: int, owner: int) -> None:
    for metric, value, unit in logged(reading.spans[i].logs):
        reading.rows.add("metrics", row=owner, metric=metric, value=value, unit=unit, source=SOURCE)


def _facts(tags: Sequence[Mapping[str, Any]]) -> RunFacts:
    def first(*keys: str) -> str | None:
        return next((value for t in tags for key in keys if (value := text(t.get(key))) is not None), None)

    sizes = (integer(t.get("batch_size")) for t in tags)
    return RunFacts(
        profiler="MLModelScope",
        framework=first("framework_name"),
        model=first("model_name"),
        batch_size=next((size for size in sizes if size), None),
        epoch_ns=0,
    )


def _left_out(count: int) -> Finding:
    detail = f"`gpu_overhead` spans were not read: {LEFT_OUT['gpu_overhead']}"
    return Finding(LedgerKind.EVENTS_LEFT_OUT, detail, count)


def _complaints(reading: _Reading) -> list[Finding]:
    levels = Counter(meaning.has_known_level for meaning in reading.meanings)
    evaluated = [t["evaluation_trace_level"] for t in reading.tags if "evaluation_trace_level" in t]
    unknown = levels[False] + sum(not is_level(level) for level in evaluated)
    counts = reading.counts
    return [
        Finding(
            LedgerKind.UNKNOWN_LEVEL,
            "trace levels that MLModelScope does not have; the spans count as application",
            unknown,
        ),
        Finding(LedgerKind.NO_LEVEL, count=levels[None]),
        Finding(LedgerKind.AMBIGUOUS_LANE, count=counts["ambiguous_lane"]),
        Finding(LedgerKind.KERNEL_WITHOUT_EXECUTION, count=counts["kernel_without_execution"]),
        Finding(LedgerKind.UNREADABLE_MEMORY, count=counts["unreadable_memory"]),
        Finding(LedgerKind.CUT_NAME, count=counts["cut_name"]),
    ]
