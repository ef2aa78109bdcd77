"""Small compiled programs (`HloProto`) written byte by byte, by the numbers of xla/service/hlo.proto."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "computation",
    "dot_dimensions",
    "instruction",
    "length_delimited",
    "number",
    "packed",
    "program",
    "shape",
    "window",
]

_TYPES = {"pred": 1, "s8": 2, "s32": 4, "u8": 6, "f16": 10, "f32": 11, "bf16": 16, "s4": 21, "f8e4m3fn": 20}
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    """A field that is a whole number."""
    return _varint(field << 3) + _varint(value % (1 << 64))


def length_delimited(field: int, content: bytes | str) -> bytes:
    """A field that is a message or a text."""
    raw = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def packed(field: int, values: Sequence[int]) -> bytes:
    """A field that is a list of whole numbers."""
    return length_delimited(field, b"".join(_varint(value) for value in values))


def shape(text: str) -> bytes:
    """A ShapeProto of a text as `f32[2,3]`, or `(f32[2], u8[7])` for a tuple."""
    arrays = [
        number(2, _TYPES[kind]) + packed(3, [int(size) for size in sizes.split(",") if size])
        for kind, sizes in _ARRAY.findall(text)
    ]
    if not text.startswith("("):
        return arrays[0]
    return number(2, 13) + b"".join(length_delimited(4, array) for array in arrays)


def dot_dimensions(lhs: Sequence[int], rhs: Sequence[int], batch: Sequence[int] = ()) -> bytes:
    """DotDimensionNumbers: contracted dimensions of both, and those of the batch, which are the same in both."""
    return packed(1, lhs) + packed(2, rhs) + packed(3, batch) + packed(4, batch)


def window(*dimensions: Mapping[str, int]) -> bytes:
    """A Window; each dimension has `size`, and may have `stride`, `low`, `high`, `dilation` and `base`."""
    fields = {"size": 1, "stride": 2, "low": 3, "high": 4, "dilation": 5, "base": 6}
    ones = {"stride": 1, "dilation": 1, "base": 1}
    return b"".join(
        length_delimited(1, b"".join(number(fields[key], value) for key, value in {**ones, **each}.items()))
        for each in dimensions
    )


def instruction(
    key: int,
    name: str,
    opcode: str,
    made: str,
    operands: Sequence[int] = (),
    *further: bytes,
    calls: Sequence[int] = (),
    op_name: str = "",
) -> bytes:
    """An HloInstructionProto; `further` fields are serialised already."""
    head = length_delimited(1, name) + length_delimited(2, opcode) + length_delimited(3, shape(made))
    metadata = length_delimited(7, length_delimited(2, op_name)) if op_name else b""
    return head + metadata + number(35, key) + packed(36, operands) + packed(38, calls) + b"".join(further)


def computation(key: int, *instructions: bytes, root: int) -> bytes:
    """An HloComputationProto."""
    inside = b"".join(length_delimited(2, each) for each in instructions)
    return length_delimited(1, f"computation_{key}") + inside + number(5, key) + number(6, root)


def program(*computations: bytes, name: str = "jit_f", further: bytes = b"") -> bytes:
    """An HloProto."""
    inside = b"".join(length_delimited(3, each) for each in computations)
    return length_delimited(1, length_delimited(1, name) + inside + further)
