"""From OTLP's JSON to staging rows: what `xsp export` wrote exactly, what others wrote as ranges.

Opentelemetry-proto, `trace/v1` and the JSON encoding of its specification: 64-bit integers are texts, ids hexadecimal;
keys of what is not read are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.content import read_all
from xsp_ingest.files.values import integer, natural
from xsp_ingest.formats.jaeger.document import (
    JaegerSpan,
    JaegerTrace,
    Log,
    Process,
    Reference,
    Tag,
    facts_of_export,
    parents,
    read_exported,
)
from xsp_ingest.staging.intervals import RANGE_COLUMNS, tables_of_ranges
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options

__all__ = ["OtlpEvent", "OtlpSpan", "Pair", "ResourceSpans", "attributes", "lanes", "load", "shape"]

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Pair(msgspec.Struct):
    """An attribute; its value says its type: `{"intValue": "5"}`."""

    key: str = ""
    value: Any = None


class OtlpEvent(msgspec.Struct):
    """What is said at one moment of a span."""

    name: str = ""
    attributes: list[Pair] | None = None


class OtlpSpan(msgspec.Struct, rename="camel"):
    """A span; times are nanoseconds since 1970, 0 where unknown."""

    span_id: str = ""
    parent_span_id: str | None = None
    name: str = ""
    kind: int | str | None = None
    start_time_unix_nano: str | int | None = None
    end_time_unix_nano: str | int | None = None
    attributes: list[Pair] | None = None
    events: list[OtlpEvent] | None = None


class Scope(msgspec.Struct):
    """The library that made spans."""

    name: str | None = None


class ScopeSpans(msgspec.Struct):
    """The spans of one library."""

    scope: Scope | None = None
    spans: list[OtlpSpan] | None = None


class Resource(msgspec.Struct):
    """What ran: a service, a process."""

    attributes: list[Pair] | None = None


class ResourceSpans(msgspec.Struct, rename="camel"):
    """The spans of one resource."""

    resource: Resource | None = None
    scope_spans: list[ScopeSpans] | None = None


class _Document(msgspec.Struct, rename="camel"):
    resource_spans: list[ResourceSpans]


def load(path: Path) -> list[ResourceSpans]:
    """The file's resources with their spans, of one document or of one a line; XspError where it is neither."""
    decoder = msgspec.json.Decoder(_Document)
    content = read_all(path).removeprefix(b"\xef\xbb\xbf")
    try:
        documents = _documents(content, decoder)
    except RecursionError as error:
        raise XspError("the JSON nests lists or objects some thousand deep", path=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise XspError(
            f"the file holds no OpenTelemetry spans in OTLP's JSON, or is cut off ({error})",
            path=path,
            advice="Export the spans again, as OTLP JSON with ids in hexadecimal",
        ) from error
    return [each for document in documents for each in document.resource_spans]


def _documents(content: bytes, decoder: msgspec.json.Decoder[_Document]) -> Sequence[_Document]:
    """One, or one a line, as the OpenTelemetry Collector's file exporter writes them."""
    first = content.lstrip()[:200].split(b"\n")[0]
    if len(first) > 1 and content.count(b"\n") > 0 and b'"resource' in first:
        lines = [line for line in content.split(b"\n") if line.strip()]
        try:
            return [decoder.decode(line) for line in lines]
        except msgspec.DecodeError:
            if len(lines) > 1 and lines[1].lstrip()[:1] == b"{" and b'"resource' in lines[1][:20]:
                raise
    return [decoder.decode(content)]


def attributes(pairs: Sequence[Pair] | None) -> Mapping[str, Any]:
    """The attributes by key as Python's values; of a key that stands twice the first counts."""
    values: dict[str, Any] = {}
    for pair in pairs or ():
        values.setdefault(pair.key, _value(pair.value))
    return values


def _value(value: Any) -> Any:  # noqa: ANN401 (whatever the file holds)
    if not isinstance(value, dict):
        return None
    ((kind, content),) = value.items() if len(value) == 1 else (("", None),)
    if kind == "intValue":
        return integer(content)
    if kind == "doubleValue" and isinstance(content, str):
        return _NOT_FINITE.get(content)
    return content if kind in {"stringValue", "boolValue", "doubleValue"} else None


# Lanes in which spans lie in the spans that they name as parents: a lane is what linking takes for a thread.


def lanes(spans: Sequence[tuple[int, int, int]], parent: Sequence[int]) -> tuple[list[int], int]:
    """A lane for each span (process, start, end), and how many do not lie in their parent there.

    Linking finds parents by time, so a span goes on a lane behind or in its parent, or on one where nothing runs:
    nothing is hung under what it does not name. Children at the same time, and those that outlast their parent, lie
    alone. Lanes of all processes are counted together.
    """
    depth = _depths(parent)
    order = sorted(range(len(spans)), key=lambda i: (spans[i][1], depth[i], -spans[i][2], i))
    lane_of = [0] * len(spans)
    running: list[tuple[int, list[int]]] = []  # of each lane its process, and the spans that run on it
    apart = 0
    for i in order:
        lane = _lane(i, spans, parent, running)
        if lane == len(running):
            running.append((spans[i][0], []))
        apart += parent[i] >= 0 and not running[lane][1]
        running[lane][1].append(i)
        lane_of[i] = lane
    return lane_of, apart


def _lane(
    i: int, spans: Sequence[tuple[int, int, int]], parent: Sequence[int], running: list[tuple[int, list[int]]]
) -> int:
    process, start, end = spans[i]
    free = len(running)
    for lane in reversed(range(len(running))):
        of, open_spans = running[lane]
        while open_spans and spans[open_spans[-1]][2] <= start:
            open_spans.pop()
        if of != process:
            continue
        if not open_spans:
            free = lane
        elif open_spans[-1] == parent[i] and end <= spans[parent[i]][2]:
            return lane
    return free


def _depths(parent: Sequence[int]) -> list[int]:
    """How many parents are above each; references hold no circles."""
    depth = [-1] * len(parent)
    for first in range(len(parent)):
        path = [first]
        while depth[path[-1]] < 0 and parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        base = max(depth[path[-1]], 0)
        for steps, at in enumerate(reversed(path)):
            depth[at] = base + steps
    return depth


# From OTLP's spans to staging rows: what `xsp export` wrote exactly, what others wrote as ranges.

_KINDS = {2: "server", 3: "client", 4: "producer", 5: "consumer"}
_SDK = ("telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version")


def shape(resources: Sequence[ResourceSpans], path: Path, options: Options) -> list[RawTrace]:
    """The runs of the file; XspError where no span has a start and an end."""
    traces = [(each, _as_jaeger(each)) for each in resources if any(True for _ in _spans(each))]
    exported = [(trace, run) for _, trace in traces if (run := facts_of_export(trace)) is not None]
    foreign = [each for each, trace in traces if facts_of_export(trace) is None]
    runs = [read_exported(trace, run, path) for trace, run in exported]
    return [*runs, _of_others(foreign, path, options)] if foreign or not runs else runs


def _spans(resource: ResourceSpans) -> Iterator[tuple[str | None, OtlpSpan]]:
    for scope in resource.scope_spans or ():
        yield from ((scope.scope.name if scope.scope else None, span) for span in scope.spans or ())


def _as_jaeger(resource: ResourceSpans) -> JaegerTrace:
    """What the export writes as tags and logs stands in attributes and events."""
    about = attributes(resource.resource.attributes if resource.resource else None)
    spans = [
        JaegerSpan(
            span.span_id,
            span.name,
            references=[Reference(span.parent_span_id)] if span.parent_span_id else None,
            tags=dict(attributes(span.attributes)),
            logs=[Log(_tags(attributes(event.attributes))) for event in span.events or ()],
        )
        for _, span in _spans(resource)
    ]
    return JaegerTrace(spans, processes={"": Process(tags=_tags(about))})


def _tags(values: Mapping[str, Any]) -> list[Tag]:
    return [Tag(key, value) for key, value in values.items()]


def _of_others(resources: Sequence[ResourceSpans], path: Path, options: Options) -> RawTrace:
    """One run: a process a resource; which span lies in which is by their ids, as far as times allow."""
    timed, findings = _timed_spans(resources)
    if not timed:
        raise XspError("no span of the file has a start and an end", path=path, advice="Export the spans again")
    references = [
        JaegerSpan(span.span_id, references=[Reference(span.parent_span_id)] if span.parent_span_id else None)
        for _, _, span, _, _ in timed
    ]
    parent, lost = parents(references)
    lane_of, apart = lanes([(process, start, end) for process, _, _, start, end in timed], parent)
    ranges = pl.DataFrame(
        [
            (span.name, _domain(scope, span), "Annotation", start, end - start, process, lane, None)
            for (process, scope, span, start, end), lane in zip(timed, lane_of, strict=True)
        ],
        schema=dict(RANGE_COLUMNS),
        orient="row",
    )
    outside = Finding(LedgerKind.PARENT_NOT_AROUND, count=apart)
    return RawTrace(tables_of_ranges(ranges, options), _facts(resources), (*findings, *lost, outside))


def _domain(scope: str | None, span: OtlpSpan) -> str | None:
    """The library, and of spans between services their kind."""
    kind = _KINDS.get(span.kind) if isinstance(span.kind, int) else None
    return ", ".join(filter(None, (scope, kind))) or None


_Timed = tuple[int, str | None, "OtlpSpan", int, int]


def _timed_spans(resources: Sequence[ResourceSpans]) -> tuple[list[_Timed], list[Finding]]:
    timed: list[_Timed] = []
    untimed = negative = 0
    for process, resource in enumerate(resources):
        pid = attributes(resource.resource.attributes if resource.resource else None).get("process.pid")
        for scope, span in _spans(resource):
            start, end = _time(span.start_time_unix_nano), _time(span.end_time_unix_nano)
            if start is None or end is None:
                untimed += 1
                continue
            negative += end < start
            timed.append((pid if isinstance(pid, int) else process, scope, span, start, max(start, end)))
    return timed, [
        Finding(LedgerKind.MISSING_TIME, "spans without a start or an end were left out", untimed),
        Finding(LedgerKind.NEGATIVE_DURATION, "spans that end before they start were taken as 0 ns long", negative),
    ]


def _time(written: str | int | None) -> int | None:
    """Nanoseconds since 1970; 0 is how the encoding writes what is not known."""
    value = natural(str(written))
    return value if value and value < LATEST_NS else None


def _facts(resources: Sequence[ResourceSpans]) -> RunFacts:
    about = attributes(resources[0].resource.attributes if resources[0].resource else None)
    tool = " ".join(str(about[key]) for key in _SDK if key in about)
    service = about.get("service.name")
    return RunFacts(
        profiler=tool or "OpenTelemetry",
        model=service if isinstance(service, str) and not service.startswith("unknown_service") else None,
        epoch_ns=0,
    )
