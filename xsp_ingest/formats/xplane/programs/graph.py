"""A compiled program: its computations and their instructions, parsed where they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.messages import message
from xsp_ingest.formats.xplane.programs.arrays import arrays_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.formats.xplane.programs.arrays import Array

__all__ = ["DAMAGE", "Computation", "Instruction", "Program", "text_in"]

DAMAGE = (DecodeError, ValueError, LookupError, RecursionError)
"""What reading a damaged program raises."""


def text_in(raw: bytes) -> str:
    return raw.decode(errors="replace")


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
        return text_in(self.message.custom_call_target)


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
        text_in(raw.name), text_in(raw.opcode), arrays_of(raw.shape), tuple(raw.operand_ids), called, raw
    )


class Program:
    """One program of a profile, from its serialised `HloProto`; DecodeError where it is none."""

    def __init__(self, raw: bytes) -> None:
        self.module = message("HloProto").FromString(raw).hlo_module
        self._computations = {each.id: Computation(each) for each in self.module.computations}

    @property
    def name(self) -> str:
        return text_in(self.module.name)

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
