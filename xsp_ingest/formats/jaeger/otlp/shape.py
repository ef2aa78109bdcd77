"""From OTLP's spans to staging rows: what `xsp export` wrote exactly, what others wrote as ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.files.values import natural
from xsp_ingest.formats.jaeger.document import JaegerSpan, JaegerTrace, Log, Process, Reference, Tag
from xsp_ingest.formats.jaeger.exported import facts_of_export, read_exported
from xsp_ingest.formats.jaeger.otlp.document import attributes
from xsp_ingest.formats.jaeger.otlp.lanes import lanes
from xsp_ingest.formats.jaeger.references import parents
from xsp_ingest.staging.events import RANGE_COLUMNS, tables_of_ranges
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.jaeger.otlp.document import OtlpSpan, ResourceSpans
    from xsp_ingest.ingester import Options

__all__ = ["shape"]

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
    timed, findings = _timed(resources)
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


def _timed(resources: Sequence[ResourceSpans]) -> tuple[list[_Timed], list[Finding]]:
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
