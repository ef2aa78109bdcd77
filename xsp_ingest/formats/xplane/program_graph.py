"""A compiled program: its computations and their instructions, parsed where they are asked for, and their arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.plane import message, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["DAMAGE", "Array", "Computation", "Instruction", "Program", "element_count", "total_bytes"]

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


# A compiled program: its computations and their instructions, parsed where they are asked for.
DAMAGE = (DecodeError, ValueError, LookupError, RecursionError)
"""What reading a damaged program raises."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `result`: the array that it makes, or the several; `message`: all that the program says."""

    name: str
    opcode: str
    result: tuple[Array, ...]
    operand_ids: tuple[int, ...]
    called_ids: tuple[int, ...]
    message: Any

    @property
    def id(self) -> int:
        return int(self.message.id)

    @property
    def target(self) -> str:
        """The library's function that a custom call calls."""
        return text_of(self.message.custom_call_target)


class Computation:
    """Instructions that depend on each other, each parsed where it is asked for: damage of one is not the others'."""

    def __init__(self, raw: Any) -> None:  # noqa: ANN401 (a message of protobuf)
        self._raw = raw
        self._parsed: dict[int, Instruction] = {}

    @cached_property
    def _by_id(self) -> Mapping[int, Any]:
        return {one.id: one for one in self._raw.instructions}

    def __getitem__(self, number: int) -> Instruction:
        """The instruction of an id; LookupError, ValueError or DecodeError where there is none or it is damaged."""
        if number not in self._parsed:
            self._parsed[number] = _instruction(self._by_id[number])
        return self._parsed[number]

    def __iter__(self) -> Iterator[Instruction]:
        return (self[number] for number in self._by_id)

    @property
    def root(self) -> Instruction:
        """The instruction whose result is the computation's."""
        is_named = self._raw.root_id in self._by_id
        return self[self._raw.root_id if is_named else self._raw.instructions[-1].id]

    @cached_property
    def parameters(self) -> Mapping[int, int]:
        """The id of the parameter of each number."""
        return {one.parameter_number: one.id for one in self._raw.instructions if one.opcode == b"parameter"}

    @cached_property
    def _user_ids(self) -> Mapping[int, Sequence[int]]:
        users: dict[int, list[int]] = {}
        for one in self._raw.instructions:
            for operand in dict.fromkeys(one.operand_ids):
                users.setdefault(operand, []).append(one.id)
        return users

    def users(self, number: int) -> list[Instruction]:
        """The instructions that take the one of this id as an operand."""
        return [self[user] for user in self._user_ids.get(number, ())]

    def operand(self, one: Instruction, index: int) -> Array:
        """An operand, which must be one array."""
        (array,) = self[one.operand_ids[index]].result
        return array

    def operands(self, one: Instruction) -> list[tuple[Array, ...]]:
        """What each operand is, those that are taken twice once."""
        return [self[number].result for number in dict.fromkeys(one.operand_ids)]


def _instruction(raw: Any) -> Instruction:  # noqa: ANN401
    called = tuple(raw.called_computation_ids)
    return Instruction(
        text_of(raw.name), text_of(raw.opcode), arrays_of(raw.shape), tuple(raw.operand_ids), called, raw
    )


class Program:
    """One program of a profile, from its serialised `HloProto`; DecodeError where it is none."""

    def __init__(self, raw: bytes) -> None:
        self.module = message("HloProto").FromString(raw).hlo_module
        self._computations = {each.id: Computation(each) for each in self.module.computations}

    @property
    def name(self) -> str:
        return text_of(self.module.name)

    def instructions(self) -> Iterator[tuple[Computation, Any]]:
        """Each instruction's message with the computation that it is in."""
        for raw in self.module.computations:
            computation = self._computations[raw.id]
            for one in raw.instructions:
                yield computation, one

    def first_callee(self, one: Instruction) -> Computation:
        """The first computation that the instruction calls."""
        return self._computations[one.called_ids[0]]

    @property
    def device_count(self) -> int | None:
        """Devices that run the program together; None: it does not say."""
        assignment = self.module.device_assignment
        return assignment.replica_count * assignment.computation_count or None
