"""Recurrent cells: the products of their gates over all steps.

Every row of a step is multiplied by every weight matrix of every layer and direction once, so that the flop are two a
weight and row, whatever the cell is. Lists of tensors have the type of the input, as profilers do not write it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import Tensor
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_MATRIX = 2


def recurrent(arguments: Arguments) -> ModelledWork | None:
    """Layers over sequences: `input` (steps, batch, features), or the rows of all steps packed (rows, features).

    Roles that begin with `weights` are matrices and biases, with `state` the states at the start, h before c; each may
    be a list. `bidirectional` tells how wide the output is, without which the bytes written are not known.
    `settings.single`: one step of one cell, which writes its states alone. Beside products the sum and the function of
    every gate count; what combines gates does not.
    """
    arguments = _past_batch_sizes(arguments)
    steps = arguments.tensor("input")
    weights, states = _tensors(arguments, "weights"), _tensors(arguments, "state")
    matrices = [t for t in weights if len(t.shape) == _MATRIX]
    if steps is None or not steps.shape or not matrices or not states:
        return None
    rows = steps.elements // max(steps.shape[-1], 1)
    gates = sum(t.shape[0] for t in matrices if t.shape[0] == matrices[0].shape[0]) // 2  # input's and state's agree
    read = steps.bytes + sum(t.bytes for t in (*weights, *states))
    return ModelledWork(2 * rows * _elements(matrices), 2 * rows * gates, read, _written(arguments, states, rows))


def recurrent_backward(arguments: Arguments) -> ModelledWork | None:
    """Of whole layers: the gradients of input and states, and of weights if the last of `mask` says so.

    Each takes the forward's multiply-adds; libraries give that of the input along with those of the states.
    """
    steps, mask = arguments.tensor("input"), arguments.value("mask")
    weights, states = _tensors(arguments, "weights"), _tensors(arguments, "state")
    if steps is None or not steps.shape or not weights or not isinstance(mask, list) or not mask:
        return None
    rows = steps.elements // max(steps.shape[-1], 1)
    of_weights = bool(mask[-1])
    size = sum(t.bytes for t in weights)
    read = steps.bytes + size + sum(t.bytes for role in ("state", "other") for t in _tensors(arguments, role))
    written = sum(t.bytes for t, computed in zip((steps, *states), mask, strict=False) if computed)
    flop = 2 * rows * _elements([t for t in weights if len(t.shape) == _MATRIX]) * (1 + of_weights)
    return ModelledWork(flop, 0, read, written + size * of_weights)


def fused_cell(arguments: Arguments) -> ModelledWork | None:
    """What a cell does behind its products: gates read, states written.

    `settings.flop`: operations a hidden unit; `settings.written`: how many arrays of the size of `state` are written.
    """
    state = arguments.tensor("state")
    flop, written = arguments.settings.get("flop"), arguments.settings.get("written")
    if state is None or not isinstance(flop, int) or not isinstance(written, int):
        return None
    return ModelledWork(0, flop * state.elements, sum(t.bytes for t in arguments.every_tensor()), written * state.bytes)


def _past_batch_sizes(arguments: Arguments) -> Arguments:
    """Packed sequences come with the rows of each step, integers, behind the input: all else is one place on."""
    second = arguments.call.inputs[1] if len(arguments.call.inputs) > 1 else None
    if not isinstance(second, Tensor) or second.element_type != "int64":
        return arguments
    return replace(arguments, operands={name: at + (at > 0) for name, at in arguments.operands.items()})


def _tensors(arguments: Arguments, role: str) -> list[Tensor]:
    """The tensors of all roles that begin so, lists laid out and of the type of the input."""
    steps, inputs = arguments.tensor("input"), arguments.call.inputs
    tensors: list[Tensor] = []
    for each in (inputs[i] for name, i in arguments.operands.items() if name.startswith(role) and i < len(inputs)):
        if isinstance(each, Tensor):
            tensors.append(each)
        elif each and steps is not None:
            tensors += [replace(t, element_type=steps.element_type) for t in each]
    return tensors


def _written(arguments: Arguments, states: Sequence[Tensor], rows: int) -> int | None:
    """Bytes of the states at the end, and of the output of all steps."""
    last = sum(t.bytes for t in states)
    if arguments.settings.get("single"):
        return last
    bidirectional = arguments.value("bidirectional")
    if bidirectional is None:
        return None
    return last + states[0].like((rows, states[0].shape[-1] * (2 if bidirectional else 1))).bytes


def _elements(matrices: Sequence[Tensor]) -> int:
    return sum(t.elements for t in matrices)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "fused_cell": fused_cell,
    "recurrent": recurrent,
    "recurrent_backward": recurrent_backward,
}
