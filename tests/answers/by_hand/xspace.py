"""An XSpace protocol buffer (`*.xplane.pb`), read from its wire format alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Event", "Line", "Plane", "read"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a line; times in ps since the epoch of the file."""

    name: str
    start: int
    end: int
    stats: dict[str, Any]


@dataclass
class Line:
    name: str
    events: list[Event] = field(default_factory=list)


@dataclass
class Plane:
    name: str
    stats: dict[str, Any]
    lines: list[Line] = field(default_factory=list)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    value: int | bytes
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _map(entries: list[bytes]) -> dict[int, dict[int, Any]]:
    out = {}
    for entry in entries:
        pair = dict(_fields(entry))
        out[pair.get(1, 0)] = dict(_fields(pair.get(2, b"")))
    return out


def _stats(raw: list[bytes], names: dict[int, dict[int, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for stat in raw:
        values = dict(_fields(stat))
        name = names.get(values.pop(1, 0), {}).get(2, b"").decode()
        for number, value in values.items():
            out[name] = _stat_value(number, value, names)
    return out


def _stat_value(number: int, value: Any, names: dict[int, dict[int, Any]]) -> object:  # noqa: ANN401 (of any type)
    if number == 2:
        return struct.unpack("<d", value)[0]
    if number == 4:
        return _signed(value)
    if number == 7:
        return names.get(value, {}).get(2, b"").decode(errors="replace")
    return value.decode(errors="replace") if number == 5 else value


@lru_cache(maxsize=1)
def read(path: Path) -> list[Plane]:
    """The planes of the file, with lines and events; names and stats resolved."""
    return [_plane(value) for number, value in _fields(path.read_bytes()) if number == 1]


def _plane(data: bytes) -> Plane:
    parts: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        parts.setdefault(number, []).append(value)
    events, names = _map(parts.get(4, [])), _map(parts.get(5, []))
    plane = Plane(parts.get(2, [b""])[0].decode(), _stats(parts.get(6, []), names))
    plane.lines = [_line(line, events, names) for line in parts.get(3, [])]
    return plane


def _line(data: bytes, events: dict[int, dict[int, Any]], names: dict[int, dict[int, Any]]) -> Line:
    parts: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        parts.setdefault(number, []).append(value)
    line = Line(parts.get(11, parts.get(2, [b""]))[0].decode())
    epoch = parts.get(3, [0])[0] * 1000
    for raw in parts.get(4, []):
        values: dict[int, list[Any]] = {}
        for number, value in _fields(raw):
            values.setdefault(number, []).append(value)
        start = epoch + _signed(values.get(2, [0])[0])
        end = start + values.get(3, [0])[0]
        name = events.get(values.get(1, [0])[0], {}).get(2, b"").decode(errors="replace")
        line.events.append(Event(name, start, end, _stats(values.get(4, []), names)))
    return line
