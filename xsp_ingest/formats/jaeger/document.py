"""The JSON of a Jaeger file as typed values: https://www.jaegertracing.io, the format of its UI and query API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.json_window import EACH, Targets, walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["JaegerSpan", "JaegerTrace", "Log", "Process", "Reference", "Tag", "load", "tags_of"]

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
            trace.spans += [shared.slimmed(span) for span in part.content]
        else:
            setattr(trace, key, part.content)
    return list(traces.values())


class _Shared:
    """Texts, references and sets of tags that were met before."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._references: dict[tuple[tuple[str, str], ...], list[Reference]] = {}

    def slimmed(self, span: JaegerSpan) -> JaegerSpan:
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
