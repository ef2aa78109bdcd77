"""Protobuf's wire format, as much of it as Perfetto's packets need (protobuf.dev, "Encoding")."""

from __future__ import annotations

import struct
from functools import lru_cache

__all__ = ["double", "fixed64", "message", "number", "text"]

_CONTINUES, _SEVEN_BITS = 0x80, 7
_TWO_TO_64 = 1 << 64
_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2


def number(field: int, value: int) -> bytes:
    """An integer; negative ones as the ten bytes of their two's complement, as int32 and int64 have them."""
    return _key(field, _VARINT) + _varint(value % _TWO_TO_64)


def fixed64(field: int, value: int) -> bytes:
    """An integer in eight bytes."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A floating point number."""
    return _key(field, _EIGHT_BYTES) + struct.pack("<d", value)


def text(field: int, value: str) -> bytes:
    """A text in UTF-8; what UTF-8 cannot hold is a question mark."""
    return message(field, value.encode(errors="replace"))


def message(field: int, content: bytes) -> bytes:
    """A message, or bytes."""
    return _key(field, _LENGTH) + _varint(len(content)) + content


@lru_cache(maxsize=1024)
def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    if value < _CONTINUES:
        return bytes((value,))
    out = bytearray()
    while value >= _CONTINUES:
        out.append(value & (_CONTINUES - 1) | _CONTINUES)
        value >>= _SEVEN_BITS
    out.append(value)
    return bytes(out)
