"""Arrays of a compiled program: element type and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.xplane.messages import message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Array", "arrays_of", "element_count", "total_bytes"]

_TYPES = {  # of xla_data.proto's PrimitiveType: name, bits of an element
    1: ("pred", 8),
    2: ("s8", 8),
    3: ("s16", 16),
    4: ("s32", 32),
    5: ("s64", 64),
    6: ("u8", 8),
    7: ("u16", 16),
    8: ("u32", 32),
    9: ("u64", 64),
    10: ("f16", 16),
    11: ("f32", 32),
    12: ("f64", 64),
    15: ("c64", 64),
    16: ("bf16", 16),
    18: ("c128", 128),
    19: ("f8e5m2", 8),
    20: ("f8e4m3fn", 8),
    21: ("s4", 4),
    22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8),
    24: ("f8e5m2fnuz", 8),
    25: ("f8e4m3fnuz", 8),
    26: ("s2", 2),
    27: ("u2", 2),
    28: ("f8e4m3", 8),
    29: ("f8e3m4", 8),
    30: ("s1", 1),
    31: ("u1", 1),
    32: ("f4e2m1fn", 4),
    33: ("f8e8m0fnu", 8),
}
_TUPLE = 13
_NO_DATA = {0, 14, 17}  # invalid, opaque, token
_MAX_DEPTH = 32
_MAX_ELEMENTS = 1 << 62


@dataclass(frozen=True, slots=True)
class Array:
    """One array; `element_type` as HLO writes it: `bf16`, `f32`, `pred`."""

    element_type: str
    sizes: tuple[int, ...]
    bits: int

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of its elements; those of less than a byte are packed."""
        return (self.elements * self.bits + 7) // 8


def element_count(arrays: Sequence[Array]) -> int:
    return sum(array.elements for array in arrays)


def total_bytes(arrays: Sequence[Array]) -> int:
    return sum(array.bytes for array in arrays)


@lru_cache(maxsize=4096)
def arrays_of(shape: bytes) -> tuple[Array, ...]:
    """The arrays of a serialised shape, a tuple's one after the other; ValueError or DecodeError where it is none."""
    return tuple(_arrays(message("HloShape").FromString(shape), 0))


def _arrays(shape: Any, depth: int) -> Iterator[Array]:  # noqa: ANN401 (a message of protobuf)
    kind = shape.element_type
    if kind == _TUPLE:
        if depth > _MAX_DEPTH:
            raise ValueError("a tuple of too many tuples")
        for each in shape.tuple_shapes:
            yield from _arrays(each, depth + 1)
    elif kind not in _NO_DATA:
        if kind not in _TYPES:
            raise ValueError("an unknown type of elements")
        sizes = tuple(shape.dimensions)
        if any(size < 0 for size in sizes) or prod(sizes) > _MAX_ELEMENTS:
            raise ValueError("a size that no array has")
        name, bits = _TYPES[kind]
        yield Array(name, sizes, bits)
