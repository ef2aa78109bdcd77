"""Chosen parts of a large JSON document in file order: long lists some entries at a time, short values whole.

A location is the keys that lead to it, with EACH for any entry of a list: `("data", EACH, "spans")`. What leads to no
target is passed over without being parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from xsp_ingest.files.json_window import JsonWindow, no_json, open_json, skip, stretch, value
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["EACH", "JsonPart", "Targets", "walk"]

EACH = "*"
Location = tuple[str, ...]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Targets:
    """The types of the entries of `lists` and of `values`, by location; and what the document is, for complaints."""

    what: str
    lists: Mapping[Location, Any] = field(default_factory=dict)
    values: Mapping[Location, Any] = field(default_factory=dict)

    def leads(self, location: Location) -> bool:
        """Whether a target is at the location or within."""
        return any(full[: len(location)] == location for full in (*self.lists, *self.values))


@dataclass(frozen=True, slots=True)
class JsonPart:
    """What stands at a location: a value, or some entries of a list; `numbers` has one for each of its EACH."""

    location: Location
    numbers: tuple[int, ...]
    content: Any


def walk(path: Path, targets: Targets) -> Iterator[JsonPart]:
    """The parts of the document at the targets; a list has at least one part, if an empty one.

    XspError where the file is cut off, nested too deeply, no JSON, or a part is not of its type. What stands twice
    comes twice.
    """
    with open_json(path) as window:
        if window.next_byte() not in b"[{":
            raise no_json(window)
        yield from _at(window, (), (), targets)


def _at(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    first = window.next_byte()
    if location in targets.lists and first in b"[":
        for entries in _entries(window, targets.lists[location], targets):
            yield JsonPart(location, numbers, entries)
    elif location in targets.lists:
        raise XspError(
            f"{targets.what} is not as its tool writes it (no list `{location[-1] if location else ''}`)",
            path=window.path,
        )
    elif location in targets.values:
        yield JsonPart(location, numbers, _decode_value(value(window), targets.values[location], window, targets))
    elif first in b"{":
        yield from _members(window, location, numbers, targets)
    elif first in b"[" and targets.leads((*location, EACH)):
        yield from _each(window, location, numbers, targets)
    else:
        skip(window)


def _members(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    window.offset += 1
    while window.next_byte(b" \t\r\n,") not in b"}":
        key = _decode_value(value(window), str, window, targets)
        if window.next_byte() not in b":":
            raise no_json(window)
        window.offset += 1
        inner = (*location, key)
        if key != EACH and targets.leads(inner):
            yield from _at(window, inner, numbers, targets)
        else:
            skip(window)
    window.offset += 1


def _each(window: JsonWindow, location: Location, numbers: tuple[int, ...], targets: Targets) -> Iterator[JsonPart]:
    window.offset += 1
    count = 0
    while window.next_byte(b" \t\r\n,") not in b"]":
        yield from _at(window, (*location, EACH), (*numbers, count), targets)
        count += 1
    window.offset += 1


def _entries(window: JsonWindow, kind: Any, targets: Targets) -> Iterator[list[Any]]:  # noqa: ANN401 (a type msgspec takes)
    window.offset += 1
    last = False
    while not last:
        text, last = stretch(window)
        yield _decode_value(text, list[kind], window, targets)
    window.offset += 1


def _decode_value(text: bytes, kind: type[_T], window: JsonWindow, targets: Targets) -> _T:
    try:
        return _parse_json(text, kind)
    except msgspec.ValidationError as error:
        raise XspError(f"{targets.what} is not as its tool writes it ({error})", path=window.path) from error
    except msgspec.DecodeError as error:
        raise no_json(window) from error
    except RecursionError as error:
        raise XspError(f"{targets.what} is nested too deeply", path=window.path) from error


def _parse_json(text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except UnicodeDecodeError:  # a second copy only where it must be
        return msgspec.json.decode(text.decode("utf-8", errors="replace"), type=kind)
