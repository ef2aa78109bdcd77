"""Bytes that an instruction reads and writes at least: each operand once, of slices only what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.formats.xplane.programs.arrays import element_count, total_bytes
from xsp_ingest.formats.xplane.programs.products import is_library_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_ingest.formats.xplane.programs.arrays import Array
    from xsp_ingest.formats.xplane.programs.graph import Computation, Instruction, Program

__all__ = ["NO_WORK", "traffic"]

NO_WORK = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"),
        *("replica-id", "domain", "opt-barrier", "add-dependency", "get-dimension-size"),
    }
)
"""Instructions that do nothing by themselves."""
_UNKNOWN = frozenset(
    {
        *("while", "conditional", "call", "infeed", "outfeed", "send", "recv", "dynamic-reshape"),
    }
)
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_TAKES_A_PART = frozenset({"slice", "dynamic-slice", "gather"})
_ONE_TO_ONE = frozenset(
    {"bitcast", "reshape", "convert", "copy", "transpose", "negate"}
)  # a part of one is of the other
_SCRATCH = frozenset({"s8", "u8"})
_MAX_DEPTH = 16


def traffic(program: Program, computation: Computation, one: Instruction) -> tuple[int, int] | None:
    """Bytes read and written; None where they are not known, or instructions that it calls do the work."""
    if one.opcode in NO_WORK:
        return 0, 0
    if one.opcode in _UNKNOWN or (one.opcode == "custom-call" and not is_library_call(one)):
        return None
    if one.opcode == "fusion":
        return _fusion(program, computation, one)
    return _WHICH.get(one.opcode, _all)(computation, one)


def _all(computation: Computation, one: Instruction) -> tuple[int, int]:
    return _read_once(computation, one), total_bytes(one.result)


def _part(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of an array that a part is taken of, that part; and where it is."""
    where = sum(total_bytes(computation[number].result) for number in one.operand_ids[1:])
    return total_bytes(one.result) + where, total_bytes(one.result)


def _copy_traffic(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of `copy-start`, whose result is the old array and the new one."""
    moved = _read_once(computation, one)
    return moved, moved


def _library(computation: Computation, one: Instruction) -> tuple[int, int]:
    return _read_once(computation, one), total_bytes(_without_scratch(one.result))


def _read_once(computation: Computation, one: Instruction) -> int:
    return sum(total_bytes(arrays) for arrays in computation.operands(one))


def _update_traffic(computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of an array in which a part is overwritten, or added to, only that part."""
    if len(one.result) != 1:
        return _all(computation, one)
    update = total_bytes(computation[_update_id(one)].result)
    if one.opcode == "dynamic-update-slice":
        return update, update
    indices = total_bytes(computation[one.operand_ids[1]].result)
    return indices + 2 * update, update


def _update_id(one: Instruction) -> int:
    """The operand that is written into the first one."""
    return one.operand_ids[-1] if one.opcode == "scatter" else one.operand_ids[1]


def _without_scratch(result: tuple[Array, ...]) -> tuple[Array, ...]:
    """The arrays but for the last one where it is the library's space to work in."""
    last = result[-1]
    is_scratch = len(result) > 1 and last.element_type in _SCRATCH and len(last.sizes) == 1
    return result[:-1] if is_scratch else result


def _fusion(program: Program, computation: Computation, one: Instruction) -> tuple[int, int]:
    """Of each operand what the fused instructions take of it, of the result what they do not leave as it was."""
    read: dict[int, int] = {}
    fused = program.first_callee(one)
    for position, operand in enumerate(one.operand_ids):
        arrays = computation[operand].result
        number = fused.parameters.get(position)
        taken = total_bytes(arrays)
        if number is not None and len(arrays) == 1:
            elements = _elements_taken(fused, number, arrays[0].elements)
            taken = -(-elements * arrays[0].bits // 8)
        read[operand] = max(read.get(operand, 0), taken)
    return sum(read.values()), sum(_result_bytes(fused, output) for output in _outputs(fused))


def _elements_taken(fused: Computation, number: int, size: int, *, is_operand: bool = True, depth: int = 0) -> int:
    """Elements of an instruction of so many that its users take, at most all.

    `is_operand`: it is the fusion's operand itself, so that what is written into it is written in place.
    """
    users = fused.users(number)
    if depth > _MAX_DEPTH or not users:
        return size
    taken = 0
    for user in users:
        is_first_only = user.operand_ids[0] == number and number not in user.operand_ids[1:]
        if user.opcode in _TAKES_A_PART and is_first_only:
            taken += element_count(user.result)
        elif user.opcode in _ONE_TO_ONE and user is not fused.root:
            stays = is_operand and user.opcode == "bitcast"
            taken += _elements_taken(fused, user.id, size, is_operand=stays, depth=depth + 1)
        elif user.opcode in _UPDATES and is_first_only and is_operand and user in _outputs(fused):
            taken += 0 if user.opcode == "dynamic-update-slice" else element_count(fused[_update_id(user)].result)
        else:
            return size
    return min(taken, size)


def _outputs(fused: Computation) -> list[Instruction]:
    """The instructions that make the results, seen through what only names them in another way."""
    roots = [fused[number] for number in fused.root.operand_ids] if fused.root.opcode == "tuple" else [fused.root]
    return [_behind(fused, root) for root in roots]


def _behind(fused: Computation, one: Instruction) -> Instruction:
    for _ in range(_MAX_DEPTH):
        if one.opcode != "bitcast":
            break
        one = fused[one.operand_ids[0]]
    return one


def _result_bytes(fused: Computation, output: Instruction) -> int:
    """Bytes of one result, or where it is an operand in which a part is overwritten, of the part."""
    if output.opcode in _UPDATES and _behind(fused, fused[output.operand_ids[0]]).opcode == "parameter":
        return total_bytes(fused[_update_id(output)].result)
    return total_bytes(output.result)


_WHICH: Mapping[str, Callable[[Computation, Instruction], tuple[int, int]]] = {
    **dict.fromkeys(_TAKES_A_PART, _part),
    **dict.fromkeys(_UPDATES, _update_traffic),
    "copy-start": _copy_traffic,
    "custom-call": _library,
}
