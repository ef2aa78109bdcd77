"""Chosen parts of a large JSON document in file order: long lists some entries at a time, short values whole.

A place is the keys that lead to it, with EACH for any entry of a list: `("data", EACH, "spans")`. What leads to none of
the wanted places is passed over without being parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from xsp_ingest.files.json_window import Window, no_json, opened, skip, stretch, value
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["EACH", "Part", "Wanted", "walk"]

EACH = "*"
Place = tuple[str, ...]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The types of the entries of `lists` and of `values`, by place; and what the document is, for complaints."""

    what: str
    lists: Mapping[Place, Any] = field(default_factory=dict)
    values: Mapping[Place, Any] = field(default_factory=dict)

    def leads(self, place: Place) -> bool:
        """Whether something wanted is at the place or within."""
        return any(full[: len(place)] == place for full in (*self.lists, *self.values))


@dataclass(frozen=True, slots=True)
class Part:
    """What was found at a place: a value, or some entries of a list; `numbers` has one for each EACH of the place."""

    place: Place
    numbers: tuple[int, ...]
    found: Any


def walk(path: Path, wanted: Wanted) -> Iterator[Part]:
    """The wanted parts of the document; a list has at least one part, if an empty one.

    XspError where the file is cut off, nested too deeply, no JSON, or a part is not of its type. What stands twice
    comes twice.
    """
    window = opened(path)
    if window.peek() not in b"[{":
        raise no_json(window)
    yield from _at(window, (), (), wanted)


def _at(window: Window, place: Place, numbers: tuple[int, ...], wanted: Wanted) -> Iterator[Part]:
    first = window.peek()
    if place in wanted.lists and first == b"[":
        for entries in _entries(window, wanted.lists[place], wanted):
            yield Part(place, numbers, entries)
    elif place in wanted.lists:
        raise XspError(
            f"{wanted.what} is not as its tool writes it (no list `{place[-1] if place else ''}`)", path=window.path
        )
    elif place in wanted.values:
        yield Part(place, numbers, _decoded(value(window), wanted.values[place], window, wanted))
    elif first == b"{":
        yield from _members(window, place, numbers, wanted)
    elif first == b"[" and wanted.leads((*place, EACH)):
        yield from _each(window, place, numbers, wanted)
    else:
        skip(window)


def _members(window: Window, place: Place, numbers: tuple[int, ...], wanted: Wanted) -> Iterator[Part]:
    window.at += 1
    while window.peek(b" \t\r\n,") != b"}":
        key = _decoded(value(window), str, window, wanted)
        if window.peek() != b":":
            raise no_json(window)
        window.at += 1
        inner = (*place, key)
        if key != EACH and wanted.leads(inner):
            yield from _at(window, inner, numbers, wanted)
        else:
            skip(window)
    window.at += 1


def _each(window: Window, place: Place, numbers: tuple[int, ...], wanted: Wanted) -> Iterator[Part]:
    window.at += 1
    count = 0
    while window.peek(b" \t\r\n,") != b"]":
        yield from _at(window, (*place, EACH), (*numbers, count), wanted)
        count += 1
    window.at += 1


def _entries(window: Window, kind: Any, wanted: Wanted) -> Iterator[list[Any]]:  # noqa: ANN401 (a type msgspec takes)
    window.at += 1
    last = False
    while not last:
        text, last = stretch(window)
        yield _decoded(b"[" + text + b"]", list[kind], window, wanted)
    window.at += 1


def _decoded(text: bytes, kind: type[_T], window: Window, wanted: Wanted) -> _T:
    try:
        return _parsed(text, kind)
    except msgspec.ValidationError as error:
        raise XspError(f"{wanted.what} is not as its tool writes it ({error})", path=window.path) from error
    except msgspec.DecodeError as error:
        raise no_json(window) from error
    except RecursionError as error:
        raise XspError(f"{wanted.what} is nested too deeply", path=window.path) from error


def _parsed(text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except UnicodeDecodeError:  # a second copy only where it must be
        return msgspec.json.decode(text.decode("utf-8", errors="replace"), type=kind)
