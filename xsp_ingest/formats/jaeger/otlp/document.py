"""OTLP's JSON as typed values: opentelemetry-proto, `trace/v1` and the JSON encoding of its specification.

64-bit integers are texts, ids hexadecimal; keys of what is not read are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.content import read_all
from xsp_ingest.files.values import integer
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["OtlpEvent", "OtlpSpan", "Pair", "ResourceSpans", "attributes", "load"]

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
