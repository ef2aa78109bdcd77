"""A call's inputs by the roles that a work model gives them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, UNKNOWN_TYPE, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.work_models.call import Call, ServingLengths

__all__ = ["Arguments"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a formula sees of a call. Roles are those of the model's `operands`, each the number of an input."""

    call: Call
    operands: Mapping[str, int]
    settings: Mapping[str, object]

    @property
    def lengths(self) -> ServingLengths | None:
        """Of a call inside a step of a serving engine: the lengths of its requests."""
        return self.call.lengths

    def tensor(self, role: str) -> Tensor | None:
        """The tensor of this role; None where there is none, or none was recorded."""
        operand = self._input(role)
        return operand if isinstance(operand, Tensor) else None

    def tensors(self, role: str) -> tuple[Tensor, ...] | None:
        """The list of tensors of this role; None where it is none, or where the size of its elements is not known."""
        operand = self._input(role)
        if not isinstance(operand, tuple):
            return None
        return self._typed(operand)

    def value(self, role: str, default: object = None) -> object:
        """The input of this role that is no tensor; `default` where it is absent or was not recorded."""
        index = self.operands.get(role)
        if index is None or index >= len(self.call.values) or self.call.values[index] is None:
            return default
        return self.call.values[index]

    def every_tensor(self) -> tuple[Tensor, ...]:
        """All tensors among the inputs in order, lists laid out; those whose elements have no known size left out."""
        laid_out: list[Tensor] = []
        for each in self.call.inputs:
            laid_out += [each] if isinstance(each, Tensor) else self._typed(each or ()) or ()
        return tuple(laid_out)

    def _input(self, role: str) -> Tensor | tuple[Tensor, ...] | None:
        index = self.operands.get(role)
        return None if index is None or index >= len(self.call.inputs) else self.call.inputs[index]

    def _typed(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if all(t.element_type != UNKNOWN_TYPE for t in tensors):
            return tensors
        kind = self.call.kernel_precision
        if kind not in ELEMENT_BITS:
            return None
        return tuple(replace(t, element_type=kind) for t in tensors)
