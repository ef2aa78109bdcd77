"""The JSON of a Jaeger file as typed values: https://www.jaegertracing.io, the format of its UI and query API."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 (a value's type at run time)
from typing import Any

import msgspec

from xsp_ingest.content import whole
from xsp_model import XspError

__all__ = ["Document", "JaegerSpan", "JaegerTrace", "Log", "Process", "Reference", "Tag", "load", "tags_of"]

_BOM = b"\xef\xbb\xbf"
_AGAIN = "Export or copy the trace again"
_PLACE = re.compile(r"byte (\d+)")


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
    tags: list[Tag] | None = None
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


class Document(msgspec.Struct):
    """A whole file."""

    data: list[JaegerTrace]


def tags_of(tags: list[Tag] | None) -> dict[str, Any]:
    """The tags by key; of a key that stands twice the first counts."""
    found: dict[str, Any] = {}
    for tag in tags or ():
        found.setdefault(tag.key, tag.value)
    return found


def load(path: Path) -> Document:
    """The file's traces, also where it is a single trace without Jaeger's envelope; XspError where it is neither.

    The whole file is read into memory: about ten bytes a byte of JSON.
    """
    content = whole(path).removeprefix(_BOM)
    try:
        return _decode(content)
    except msgspec.ValidationError as error:
        raise XspError(
            f"JSON, but no Jaeger traces: {error}", path=path, advice="Is it what Jaeger's UI or API gave?"
        ) from error
    except RecursionError as error:
        raise XspError("the JSON is nested too deeply for a trace", path=path, advice=_AGAIN) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(str(error), path) from error


def _decode(content: bytes) -> Document:
    try:
        return msgspec.json.decode(content, type=Document)
    except msgspec.ValidationError:
        if b'"data"' in content[:1024]:
            raise
        return Document([msgspec.json.decode(content, type=JaegerTrace)])


def _unreadable(what: str, path: Path) -> XspError:
    if "truncated" in what:
        return XspError("the trace is cut off: the file ends before its JSON does", path=path, advice=_AGAIN)
    place = _PLACE.search(what)
    where = f" at byte {place[1]}" if place else ""
    return XspError(f"the trace is not valid JSON{where}", path=path, advice=_AGAIN)
