"""Operators whose operands stream through the device once: each is read once, each result written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor
from xsp_analyze.work_models.results import result_elements, result_type
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS", "one_pass"]

Operands = dict[str, Tensor | tuple[Tensor, ...]]

_ONE_LIKE_ALL: Sequence[Mapping[str, object]] = ({},)


def one_pass(arguments: Arguments) -> ModelledWork | None:
    """The bytes of every operand once, and of every result; `settings.flop` for each element of the largest of them.

    Operands whose role begins with `out` are written, not read; with `shape`: of which only the shape counts; with
    `mask`: whose type does not count for the result's. `settings.outputs`: the results, as `results` has them. In place
    (the name ends in `_`) the result is the first operand; with lists and no `outputs` like the first one. A result but
    the first whose size was not recorded is left out: the least.
    """
    operands = _operands(arguments)
    if not operands:
        return None
    read = sum(_bytes(o) for role, o in operands.items() if not role.startswith(("out", "shape")))
    written = _written(arguments, operands)
    if written is None:
        return None
    elements = max([written[1], *(_elements(o) for role, o in operands.items() if not role.startswith("shape"))])
    flop = arguments.settings.get("flop", 1)
    return ModelledWork(0, elements * (flop if isinstance(flop, int) else 1), read, written[0])


def _operands(arguments: Arguments) -> Operands | None:
    """The tensors, and lists of them, by role; None where the size of a list's elements is not known."""
    operands: Operands = {}
    for role, index in arguments.operands.items():
        recorded = arguments.call.inputs[index] if index < len(arguments.call.inputs) else None
        if isinstance(recorded, tuple):
            listed = arguments.tensors(role)
            if listed is None:
                return None
            operands[role] = listed
        elif recorded is not None:
            operands[role] = recorded
    return operands


def _written(arguments: Arguments, operands: Operands) -> tuple[int, int] | None:
    """Bytes that are written, and elements of the first result."""
    outputs = arguments.settings.get("outputs")
    buffers = [o for role, o in operands.items() if role.startswith("out")]
    read_elements = [_elements(o) for role, o in operands.items() if not role.startswith("out")]
    if buffers and (any(map(_elements, buffers)) or not any(read_elements)):  # else it is made large enough later
        return sum(map(_bytes, buffers)), _elements(buffers[0])
    first = next(iter(operands.values()))
    if not isinstance(outputs, list):
        if _is_in_place(arguments) or isinstance(first, tuple):
            return _bytes(first), _elements(first)
        outputs = _ONE_LIKE_ALL
    results = [_result(arguments, output, operands) for output in outputs]
    if results[0] is None:
        return None
    return sum(size for size, _ in filter(None, results)), results[0][1]


def _is_in_place(arguments: Arguments) -> bool:
    return arguments.call.name.endswith("_") and arguments.settings.get("in_place", True) is True


def _result(arguments: Arguments, output: Mapping[str, object], operands: Operands) -> tuple[int, int] | None:
    elements = result_elements(arguments, output, operands)
    element_type = result_type(arguments, output, operands)
    if elements is None or element_type is None:
        return None
    return elements * ELEMENT_BITS[element_type] // 8, elements


def _bytes(operand: Tensor | tuple[Tensor, ...]) -> int:
    return operand.bytes if isinstance(operand, Tensor) else sum(t.bytes for t in operand)


def _elements(operand: Tensor | tuple[Tensor, ...]) -> int:
    return operand.elements if isinstance(operand, Tensor) else sum(t.elements for t in operand)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {"one_pass": one_pass}
