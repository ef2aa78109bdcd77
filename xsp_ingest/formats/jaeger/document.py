"""The JSON of a Jaeger file as typed values, and staging rows of a trace that `xsp export --to jaeger` wrote."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.json_window import EACH, Targets, walk
from xsp_ingest.files.values import finite, integer, text
from xsp_ingest.staging.intervals import Rows
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts
from xsp_model import Finding, Kind, LedgerKind, Level, XspError
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "JaegerSpan",
    "JaegerTrace",
    "Log",
    "Process",
    "Reference",
    "Tag",
    "facts_of_export",
    "lists_as_json",
    "load",
    "parents",
    "read_exported",
    "sizes",
    "tags_of",
]

# The JSON of a Jaeger file as typed values: https://www.jaegertracing.io, the format of its UI and query API.

_NUMBER = re.compile(r"\d+")
_LISTS = re.compile(r"[\[\]\d\s,-]+\Z")
_BETWEEN = re.compile(r"(?<=[\d\]])\s*[\s,]\s*(?=[\d\[-])")
_AXES = 3
_MAX_DIGITS = 18  # of a number that surely fits into 64 bits


def sizes(value: Any) -> tuple[int, int, int] | None:  # noqa: ANN401
    """Three sizes, as `[729 1 1]`, `[729,1,1]` or a list."""
    digits = _NUMBER.findall(str(value)) if isinstance(value, str | list) else []
    axes = [int(n) for n in digits if len(n) <= _MAX_DIGITS]
    return (axes[0], axes[1], axes[2]) if len(axes) == _AXES else None


def lists_as_json(value: Any) -> str | None:  # noqa: ANN401
    """Nested lists of integers as JSON, from Go's `[[1 2] [3]]` or from JSON; null for anything else."""
    shown = str(value) if isinstance(value, str | list) else ""
    return _BETWEEN.sub(", ", shown.strip()) if "[" in shown and _LISTS.match(shown) else None


# Which span each span refers to as its parent, and which references lead nowhere or in a circle.


def parents(spans: Sequence[JaegerSpan]) -> tuple[list[int], list[Finding]]:
    """For each span the position of its parent or -1; a reference that closes a circle counts as none."""
    index_of = {span.spanID: i for i, span in enumerate(spans)}
    parent, missing = [-1] * len(spans), 0
    for i, span in enumerate(spans):
        parent_id = _parent_id(span)
        if parent_id:
            parent[i] = index_of.get(parent_id, -1)
            missing += parent[i] < 0
    cut = _in_circles(parent)
    for i in cut:
        parent[i] = -1
    return parent, [
        Finding(LedgerKind.MISSING_REFERENCE, count=missing),
        Finding(LedgerKind.REFERENCE_CYCLE, count=len(cut)),
    ]


def _parent_id(span: JaegerSpan) -> str:
    for reference in span.references or ():
        if reference.refType == "CHILD_OF":
            return reference.spanID
    return span.parentSpanID or next((r.spanID for r in span.references or ()), "")


def _in_circles(parent: Sequence[int]) -> list[int]:
    """Every member of a circle; spans that only lead into one are not."""
    seen = [0] * len(parent)  # the walk that came by first, from 1
    members: list[int] = []
    for first in range(len(parent)):
        at = first
        while at >= 0 and not seen[at]:
            seen[at] = first + 1
            at = parent[at]
        if at >= 0 and seen[at] == first + 1:
            members.append(at)
            following = parent[at]
            while following != at:
                members.append(following)
                following = parent[following]
    return members


_MAX_SHARED = 1 << 17


class Tag(msgspec.Struct):
    """A key with a value; MLModelScope writes every value as text, whatever its type."""

    key: str
    value: Any = None


class Reference(msgspec.Struct):
    """A tie to another span; CHILD_OF where nothing else is said."""

    spanID: str  # noqa: N815 (Jaeger's key)
    refType: str = "CHILD_OF"  # noqa: N815


class Log(msgspec.Struct):
    """Key-value pairs at one moment of a span."""

    fields: list[Tag] = []


class JaegerSpan(msgspec.Struct):
    """A span; `startTime` and `duration` are microseconds, the former since 1970."""

    spanID: str  # noqa: N815
    operationName: str = ""  # noqa: N815
    references: list[Reference] | None = None
    parentSpanID: str = ""  # noqa: N815
    startTime: int | None = None  # noqa: N815
    duration: int | None = None
    tags: list[Tag] | dict[str, Any] | None = None  # by key once the file is read
    logs: list[Log] | None = None
    processID: str = ""  # noqa: N815


class Process(msgspec.Struct):
    """A service that wrote spans."""

    serviceName: str = ""  # noqa: N815
    tags: list[Tag] | None = None


class JaegerTrace(msgspec.Struct):
    """The spans of one trace."""

    spans: list[JaegerSpan]
    traceID: str = ""  # noqa: N815
    processes: dict[str, Process] | None = None


def tags_of(tags: list[Tag] | dict[str, Any] | None) -> dict[str, Any]:
    """The tags by key; of a key that stands twice the first counts."""
    if isinstance(tags, dict):
        return tags
    values: dict[str, Any] = {}
    for tag in tags or ():
        values.setdefault(tag.key, tag.value)
    return values


_PARTS: Mapping[str, Any] = {"traceID": str, "processes": dict[str, Process] | None}
_LOCATIONS = (("data", EACH), ())  # of a trace: in Jaeger's envelope, or alone
_TARGETS = Targets(
    "the file holds no Jaeger traces: it",
    lists={(*location, "spans"): JaegerSpan for location in _LOCATIONS},
    values={(*location, key): kind for location in _LOCATIONS for key, kind in _PARTS.items()},
)


def load(path: Path) -> list[JaegerTrace]:
    """The file's traces, also where it is a single trace without Jaeger's envelope; XspError where it is neither.

    Spans are read some at a time, and what most of them have in common is kept once: the trace takes about two bytes
    a byte of JSON.
    """
    traces: dict[tuple[int, ...], JaegerTrace] = {}
    shared = _Shared()
    for part in walk(path, _TARGETS):
        trace = traces.setdefault(part.numbers, JaegerTrace([]))
        key = part.location[-1]
        if key == "spans":
            trace.spans += [shared.slim(span) for span in part.content]
        else:
            setattr(trace, key, part.content)
    return list(traces.values())


class _Shared:
    """Texts, references and sets of tags that were met before."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._references: dict[tuple[tuple[str, str], ...], list[Reference]] = {}

    def slim(self, span: JaegerSpan) -> JaegerSpan:
        """The same span, its tags by key, what was met before shared."""
        span.operationName = self._text(span.operationName)
        span.processID = self._text(span.processID)
        if isinstance(span.tags, list):
            span.tags = {self._text(k): self._value(v) for k, v in tags_of(span.tags).items()}
        if span.references is not None:
            same = tuple((one.spanID, one.refType) for one in span.references)
            span.references = self._references.setdefault(same, span.references) if self._room() else span.references
        span.logs = span.logs or None
        return span

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text) if self._room() else self._texts.get(text, text)

    def _value(self, value: Any) -> Any:  # noqa: ANN401 (a tag's value)
        return self._text(value) if isinstance(value, str) else value

    def _room(self) -> bool:
        return len(self._texts) < _MAX_SHARED and len(self._references) < _MAX_SHARED


# From a trace that `xsp export --to jaeger` wrote to staging rows: exactly what was exported.

_VERSION = "1"
_DETAILS = ("layers", "operators", "ranges", "kernels", "copies")
_TEXT_COLUMNS = frozenset(
    {
        "layer_type",
        "path",
        "shapes",
        "dtypes",
        "input_shapes",
        "input_dtypes",
        "input_strides",
        "concrete_inputs",
        "source_lines",
        "text",
        "domain",
        "style",
    }
    | {"copy_kind", "source_kind", "destination_kind"}
)
_NUMBERS = ("process_id", "thread_id", "device_id", "context_id", "stream_id", "correlation_id")
_CATEGORIES = {"level": frozenset(map(str, LEVELS)), "kind": frozenset(map(str, Kind))}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def facts_of_export(trace: JaegerTrace) -> Mapping[str, Any] | None:
    """The run's tags where `xsp export` wrote the trace, else None."""
    for process in (trace.processes or {}).values():
        tags = tags_of(process.tags)
        if str(tags.get("xsp.export_version")) == _VERSION:
            return tags
    return None


def read_exported(trace: JaegerTrace, run: Mapping[str, Any], path: Path) -> RawTrace:
    """The rows of one exported run; XspError where a span lacks what the export writes."""
    rows = Rows()
    origin = integer(run.get("clock_origin_ns")) or 0
    parent, findings = parents(trace.spans)
    index_of = {span.spanID: i for i, span in enumerate(trace.spans)}
    tags = [tags_of(span.tags) for span in trace.spans]
    for i in _outer_first(parent):
        row = {**_span_row(trace.spans[i], tags[i], path), "row": i}
        row["start_ns"] += origin
        if row["level"] == Level.KERNEL and parent[i] >= 0:
            row["issued_by_row"] = parent[i]  # the launch, where that is in the file, is found by its correlation id
        rows.add("spans", **row)
        _add_details(rows, i, tags[i], index_of)
    for span in trace.spans:
        _add_metrics(rows, span, index_of)
    _add_devices(rows, text(run.get("devices")))
    return RawTrace(rows.frames(), _facts(run, origin), tuple(findings))


def _outer_first(parent: Sequence[int]) -> list[int]:
    """Positions by depth: of spans with the same times linking takes the first in the file for the outer one."""
    depth = [-1] * len(parent)
    for i in range(len(parent)):
        path = [i]
        while depth[path[-1]] < 0 and parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        base = max(depth[path[-1]], 0)
        for steps, at in enumerate(reversed(path)):
            depth[at] = base + steps
    return sorted(range(len(parent)), key=lambda i: (depth[i], i))


def _span_row(span: JaegerSpan, tags: Mapping[str, Any], path: Path) -> dict[str, Any]:
    start = integer(tags.get("start_ns"))
    categories = {key: text(tags.get(key)) for key in _CATEGORIES}
    if start is None or any(category not in _CATEGORIES[key] for key, category in categories.items()):
        raise XspError(
            f"span {span.spanID} lacks the tags level, kind and start_ns that `xsp export` writes",
            path=path,
            advice="Export the trace again",
        )
    return {
        "name": span.operationName,
        "start_ns": start,
        "duration_ns": integer(tags.get("duration_ns")),
        **categories,
        **{key: integer(tags.get(key)) for key in _NUMBERS},
    }


def _add_details(rows: Rows, i: int, tags: Mapping[str, Any], index_of: Mapping[str, int]) -> None:
    for table in (text(tags.get("xsp.details")) or "").split():
        if table not in _DETAILS:
            continue
        row = {column: _value(column, tags.get(column)) for column in RAW_TABLES[table]}
        row["row"] = i
        if table == "layers":
            row["sequence_index"] = integer(tags.get("layer_index"))
        elif table == "operators":
            row["forward_row"] = index_of.get(str(tags.get("forward_span")))
            row["forward_thread_id"] = 1 if tags.get("backward") is True else None
        elif table == "kernels":
            row["captured_in_row"] = index_of.get(str(tags.get("captured_in_span")))
        rows.add(table, **row)


def _value(column: str, value: Any) -> object:  # noqa: ANN401 (a tag's value)
    if column in _TEXT_COLUMNS:
        return value if isinstance(value, str) else None
    return integer(value)


def _add_metrics(rows: Rows, span: JaegerSpan, index_of: Mapping[str, int]) -> None:
    for log in span.logs or ():
        fields = tags_of(log.fields)
        owner = index_of.get(str(fields.pop("span", "")))
        unit, source = str(fields.pop("unit", "")), str(fields.pop("source", ""))
        for metric, written in fields.items():
            value = _NOT_FINITE.get(written) if isinstance(written, str) else finite(written)
            if owner is not None and value is not None:
                rows.add("metrics", row=owner, metric=metric, value=value, unit=unit, source=source)


def _add_devices(rows: Rows, written: str | None) -> None:
    for device in msgspec.json.decode(written or "[]", type=list[dict[str, Any]]):
        rows.add("devices", **{key: value for key, value in device.items() if key in RAW_TABLES["devices"]})


def _flag(written: object) -> bool | None:
    return written if isinstance(written, bool) else None


def _facts(run: Mapping[str, Any], origin: int) -> RunFacts:
    epoch = integer(run.get("epoch_ns"))
    return RunFacts(
        profiler=text(run.get("profiler")) or "",
        framework=text(run.get("framework")),
        model=text(run.get("model")),
        batch_size=integer(run.get("batch_size")),
        role=text(run.get("role")),
        serialised=_flag(run.get("serialised")),
        rank=integer(run.get("rank")),
        world_size=integer(run.get("world_size")),
        epoch_ns=None if epoch is None else epoch - origin,
    )
