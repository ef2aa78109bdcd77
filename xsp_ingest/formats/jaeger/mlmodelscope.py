"""From a trace that MLModelScope wrote to staging rows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.values import integer, text
from xsp_ingest.formats.jaeger.document import lists_as_json, parents, sizes, tags_of
from xsp_ingest.formats.jaeger.levels import (
    DEVICE_WORK,
    FRAMEWORK_MEMORY,
    LEFT_OUT,
    SOURCE,
    Meaning,
    is_level,
    meaning,
    metrics_of_logs,
)
from xsp_ingest.link.nest import SLACK_NS
from xsp_ingest.staging.intervals import Rows
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, Kind, LedgerKind, Level, Severity
from xsp_model.columns.intervals import LATEST_NS
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.formats.jaeger.document import JaegerSpan, JaegerTrace
    from xsp_ingest.ingester import Options

__all__ = ["HostSpan", "lanes", "read_mlmodelscope"]

# Lanes for host spans without threads, in which they nest: a lane is what linking takes for a thread.
#
# MLModelScope ties layers, launches and calls alike to the model's span, and tells no thread for launches; its own
# analysis finds parents by time and level. Layers never nest in each other: each that ran beside others gets a lane.

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_MUST_FIT = frozenset({Level.APPLICATION, Level.MODEL})  # an overhang here would hide the model's span


@dataclass(frozen=True, slots=True)
class HostSpan:
    """A span on the host; `parent` is the position of the span it refers to, or -1; `is_root`: nothing holds it."""

    level: Level
    start_ns: int
    end_ns: int
    parent: int = -1
    is_root: bool = False


def lanes(spans: Sequence[HostSpan]) -> tuple[list[int], int]:
    """A lane for each span, and how many spans could be in several layers at once; half-open intervals.

    A span goes where the innermost span of the deepest outer level holds it. O(n log n + n * lanes).
    """
    order = sorted(range(len(spans)), key=lambda i: (spans[i].start_ns, _RANK[spans[i].level], -spans[i].end_ns, i))
    lane_of = [0] * len(spans)
    stacks: list[list[int]] = []
    ambiguous = 0
    for i in order:
        lane, doubtful = _choose(i, spans, stacks)
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(i)
        lane_of[i] = lane
        ambiguous += doubtful
    return lane_of, ambiguous


def _choose(i: int, spans: Sequence[HostSpan], stacks: list[list[int]]) -> tuple[int, bool]:
    tops: list[tuple[int, int]] = []
    free = len(stacks)
    for lane in reversed(range(len(stacks))):
        stack = stacks[lane]
        while stack and spans[stack[-1]].end_ns <= spans[i].start_ns:
            stack.pop()
        if stack:
            tops.append((lane, stack[-1]))
        else:
            free = lane
    holders = [(lane, top) for lane, top in tops if _holds(spans[top], spans[i]) and not spans[i].is_root]
    if spans[i].level not in _MUST_FIT:  # what begins in a layer is of a layer, though it ends after it
        deepest = max((_RANK[spans[top].level] for _, top in holders), default=0)
        holders = [(lane, top) for lane, top in holders if _RANK[spans[top].level] == deepest]
    complete = [(lane, top) for lane, top in holders if spans[i].end_ns <= spans[top].end_ns + SLACK_NS]
    if not complete and spans[i].level not in _MUST_FIT:
        complete = holders
    return _best(i, complete, spans) if complete else (free, False)


def _holds(top: HostSpan, span: HostSpan) -> bool:
    """Whether linking may take `top` for the span's parent, and should."""
    return _RANK[top.level] < _RANK[span.level] or (top.level == span.level and span.level is not Level.LAYER)


def _best(i: int, holders: Sequence[tuple[int, int]], spans: Sequence[HostSpan]) -> tuple[int, bool]:
    deepest = max(_RANK[spans[top].level] for _, top in holders)
    equal = [(lane, top) for lane, top in holders if _RANK[spans[top].level] == deepest]
    recorded = [(lane, top) for lane, top in equal if top == spans[i].parent]
    lane, _ = max(recorded or equal, key=lambda pair: (spans[pair[1]].start_ns, -pair[0]))
    return lane, len(equal) > 1 and not recorded


# What the tags of MLModelScope's spans say of a layer, a kernel or a copy.

_ENDS = {"h": "Host", "d": "Device", "a": "Array", "p": "Peer"}
_UNKNOWN_MEMORY = ("unknown", "<unknown>")


def add_layer(rows: Rows, row: int, span: JaegerSpan, tags: Mapping[str, Any]) -> bool:
    """Adds what the file says of a layer; whether what it says of its memory could be read."""
    allocated, readable = _output_bytes(tags)
    rows.add(
        "layers",
        row=row,
        sequence_index=integer(tags.get("layer_sequence_index")),
        layer_type=text(tags.get("op_name")) or text(tags.get("static_op_name")) or span.operationName or None,
        shapes=lists_as_json(tags.get("shape")),
        allocated_bytes=allocated,
    )
    for tag, metric in FRAMEWORK_MEMORY.items():
        value = integer(tags.get(tag))
        if value is not None:
            rows.add("metrics", row=row, metric=metric, value=float(value), unit="byte", source="framework")
    return readable


def _output_bytes(tags: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Bytes of all outputs of the layer, as TensorFlow's allocation descriptions give them."""
    allocated_bytes = integer(tags.get("allocated_bytes"))
    written = text(tags.get("output"))
    if allocated_bytes is not None or written is None:
        return allocated_bytes, True
    try:
        outputs = msgspec.json.decode(written.replace("\\", ""))
    except msgspec.DecodeError:
        return None, False
    allocations = [_allocation(output) for output in outputs] if isinstance(outputs, list) else []
    counts = [count for count in allocations if count is not None]
    return (sum(counts) if counts else None), True


def _allocation(output: Any) -> int | None:  # noqa: ANN401 (JSON of any shape)
    for key in ("tensor_description", "allocation_description", "allocated_bytes"):
        output = output.get(key) if isinstance(output, dict) else None
    return integer(output)


def device_name(kind: Kind, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    """The kernel's demangled name, else its mangled one, else what its launch says; of a copy its direction."""
    if kind is Kind.MEMCPY:
        return f"Memcpy {_direction(tags).replace('2', 'to').upper().replace('TO', 'to')}".strip()
    if kind is Kind.MEMSET:
        return "Memset"
    named = (tags.get("kernel_name"), tags.get("name"), tags.get("kernel"), launch.get("kernel"))
    return next((name for value in named if (name := text(value)) is not None), "(no name)")


def _direction(tags: Mapping[str, Any]) -> str:
    return (text(tags.get("copy_kind")) or "").lower()


def add_kernel(rows: Rows, row: int, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> None:
    """Adds how a kernel was launched, from its own tags or its launch's."""
    shape: dict[str, object] = {}
    for what in ("grid", "block"):
        axes = sizes(tags.get(f"{what}_dim")) or sizes(launch.get(f"{what}_dim")) or (None, None, None)
        shape |= {f"{what}_{axis}": size for axis, size in zip("xyz", axes, strict=True)}
    rows.add(
        "kernels",
        row=row,
        **shape,
        static_shared_bytes=integer(tags.get("static_sharedMemory")),
        dynamic_shared_bytes=integer(tags.get("dynamic_sharedMemory")),
    )


def add_copy(rows: Rows, row: int, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> None:
    """Adds what a copy or fill moved."""
    source, _, destination = _direction(tags).partition("2")
    ends = [_ENDS.get(end) for end in (source, destination)]
    count = integer(tags.get("bytes"))
    rows.add(
        "copies",
        row=row,
        bytes=integer(launch.get("byte_count")) if count is None else count,
        copy_kind="-to-".join(end for end in ends if end) if all(ends) else None,
        source_kind=_memory(tags.get("src_kind")),
        destination_kind=_memory(tags.get("dst_kind") or tags.get("memory_kind")),
    )


def _memory(value: Any) -> str | None:  # noqa: ANN401
    label = text(value)
    return None if label is None or label.startswith(_UNKNOWN_MEMORY) else label.capitalize()


# Keeps the spans that can be used, and counts the others under the reason why they cannot.

_LONGEST_US = 24 * 3600 * 10**6  # no window of a profiler's is a day long
_LATEST_US = LATEST_NS // 1000


def sound_spans(spans: Sequence[JaegerSpan]) -> tuple[list[JaegerSpan], list[Finding]]:
    """Spans with a start and a duration, each once; negative and absurd durations become 0."""
    once: dict[tuple[str, str, int | None, int | None], JaegerSpan] = {}
    for span in spans:
        once.setdefault((span.spanID, span.operationName, span.startTime, span.duration), span)
    absurd = [span for span in once.values() if span.duration is not None and span.duration > _LONGEST_US]
    for span in absurd:
        span.duration = 0
    for span in once.values():
        if span.startTime is not None and abs(span.startTime) > _LATEST_US:
            span.startTime = None
    started = [span for span in once.values() if span.startTime is not None]
    timed = [span for span in started if span.duration is not None]
    negative = [span for span in timed if span.duration is not None and span.duration < 0]
    for span in negative:
        span.duration = 0
    detail = "spans that stand in the file more than once, with the same times, were read once"
    return timed, [
        Finding(LedgerKind.DUPLICATE_EVENT, detail, len(spans) - len(once)),
        *_missing("start", [span for span in once.values() if span.startTime is None]),
        *_missing("duration", [span for span in started if span.duration is None]),
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            "spans with a negative duration were taken as 0 ns long",
            len(negative),
            Severity.ERROR,
            advice="Their time is missing from every sum",
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "spans longer than a day were taken as 0 ns long",
            len(absurd),
            advice="Their time is missing from every sum",
        ),
    ]


def _missing(field: str, lost: Sequence[JaegerSpan]) -> list[Finding]:
    work = sum(span.operationName in DEVICE_WORK for span in lost)
    return [
        Finding(
            LedgerKind(f"missing_{field}"), f"device activities without a {field} were left out", work, Severity.ERROR
        ),
        Finding(
            LedgerKind(f"missing_{field}"),
            f"host spans without a {field} were left out",
            len(lost) - work,
            severity=Severity.WARNING,
        ),
    ]


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
    begun = _let_steps_end_with_work(reading, parent)
    _add_host(reading, parent, begun)
    _add_device(reading)
    waited = Finding(LedgerKind.STEPS_INFERRED, _ASYNCHRONOUS, reading.counts["asynchronous"], advice="")
    findings += [*lost, waited, *_complaints(reading), _overhead_finding(len(timed) - len(spans))]
    facts = replace(_facts(tags), layers_begin_early=bool(begun))
    return RawTrace(reading.rows.frames(), facts, tuple(findings))


_SIDE_BY_SIDE = 64  # layers that an engine's threads run side by side
_WORK = frozenset({Level.LAYER, Level.OPERATOR, Level.LIBRARY, Level.KERNEL})
_ASYNCHRONOUS = (
    "the model's call returned before its work began, as MXNet's does; each such step reaches to the end of the last"
    " layer or device activity that began in it"
)


def _let_steps_end_with_work(reading: _Reading, parent: Sequence[int]) -> frozenset[int]:
    """Makes the step of a call that returned before most of its work began as long as that work; see `_ASYNCHRONOUS`.

    Its work is what began after it, before the next step, and in the span that the call was made in. Gives the layers
    that had begun when the call was made, of which the greater part lies in the step.
    """
    spans = reading.spans
    times = [_interval(span) for span in spans]
    steps = sorted((i for i, m in enumerate(reading.meanings) if m.kind is Kind.STEP), key=lambda i: times[i])
    work = sorted((times[i], i) for i, m in enumerate(reading.meanings) if m.level in _WORK)
    starts = [start for (start, _), _ in work]
    begun: set[int] = set()
    for i, following in zip(steps, [*steps[1:], None][: len(steps)], strict=True):
        start, duration = times[i]
        limit = LATEST_NS if following is None else times[following][0]
        if parent[i] >= 0:
            limit = min(limit, sum(times[parent[i]]))
        first = bisect_left(starts, start)
        of_step = work[first : bisect_left(starts, limit)]
        late = sum(begin >= start + duration for (begin, _), _ in of_step)
        if late * 2 > len(of_step):
            end = max(begin + length for (begin, length), _ in of_step)
            spans[i].duration = max((end - start) // _NS_PER_US, spans[i].duration or 0)
            reading.counts["asynchronous"] += 1
            begun.update(
                k
                for (begin, length), k in work[max(first - _SIDE_BY_SIDE, 0) : first]
                if reading.meanings[k].level is Level.LAYER and start < begin + length // 2 < end
            )
    return frozenset(begun)


def _interval(span: JaegerSpan) -> tuple[int, int]:
    """Start and duration in ns; `sound_spans` left only spans that have both."""
    return (span.startTime or 0) * _NS_PER_US, (span.duration or 0) * _NS_PER_US


def _add_host(reading: _Reading, parent: Sequence[int], roots: frozenset[int]) -> None:
    host = [i for i, m in enumerate(reading.meanings) if m.level is not Level.KERNEL]
    index_of = {i: n for n, i in enumerate(host)}
    lane_of, ambiguous = lanes([_host_span(reading, i, index_of.get(parent[i], -1), i in roots) for i in host])
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


def _host_span(reading: _Reading, i: int, parent: int, is_root: bool) -> HostSpan:  # noqa: FBT001 (of one call)
    start_ns, duration_ns = _interval(reading.spans[i])
    return HostSpan(reading.meanings[i].level, start_ns, start_ns + duration_ns, parent, is_root)


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
        if span_meaning.level is not Level.RUNTIME or not metrics_of_logs(span.logs):
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
    for metric, value, unit in metrics_of_logs(reading.spans[i].logs):
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


def _overhead_finding(count: int) -> Finding:
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
