"""Walks the fields of a serialised protobuf message without parsing what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.files.values import varint
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Field", "damaged_profile", "fields"]

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_LAST_FIELD = (1 << 29) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field: where its key begins and where its content lies in the file."""

    number: int
    is_message: bool  # length-delimited: a message, a string or bytes
    key: int
    start: int
    end: int


def damaged_profile(path: Path, at: int) -> XspError:
    """What to say of bytes that are no protobuf message."""
    return XspError(
        f"the profile is damaged or cut off: no sound field at byte {at}",
        path=path,
        advice="Copy or capture it again; a program that was killed leaves such files",
    )


def fields(data: bytes | memoryview, start: int, end: int, path: Path) -> Iterator[Field]:
    """The fields of the message that lies from `start` to `end`; XspError where it is none."""
    at = start
    while at < end:
        key_at = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if at < 0 or not 0 < number <= _LAST_FIELD:
            raise damaged_profile(path, key_at)
        begin, stop = _content(data, at, end, kind)
        if begin < 0 or stop > end:
            raise damaged_profile(path, key_at)
        yield Field(number, kind == _LENGTH, key_at, begin, stop)
        at = stop


def _content(data: bytes | memoryview, at: int, end: int, kind: int) -> tuple[int, int]:
    if kind == _LENGTH:
        size, begin = varint(data, at, end)
        return begin, begin + size
    if kind == _VARINT:
        _, stop = varint(data, at, end)
        return (at, stop) if stop >= 0 else (-1, -1)
    return (at, at + _FIXED[kind]) if kind in _FIXED else (-1, -1)
