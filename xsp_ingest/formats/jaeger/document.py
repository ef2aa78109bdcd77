"""The JSON of a Jaeger file as typed values: https://www.jaegertracing.io, the format of its UI and query API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.json_window import EACH, Targets, walk
from xsp_model import Finding, LedgerKind

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
    "lists_as_json",
    "load",
    "parents",
    "sizes",
    "tags_of",
]

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


# The JSON of a Jaeger file as typed values: https://www.jaegertracing.io, the format of its UI and query API.

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
