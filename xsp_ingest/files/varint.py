"""Integers of variable length as protobuf writes them: seven bits a byte, the lowest first."""

from __future__ import annotations

__all__ = ["varint"]

_MAX_VARINT_BYTES = 10
_HIGH_BIT = 0x80


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at an offset and the offset behind it, -1 where there is none."""
    value = 0
    for n in range(min(_MAX_VARINT_BYTES, end - at)):
        byte = data[at + n]
        value |= (byte & (_HIGH_BIT - 1)) << (7 * n)
        if byte < _HIGH_BIT:
            return value, at + n + 1
    return 0, -1
