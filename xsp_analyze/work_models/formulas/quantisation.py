"""Quantisation: reading in one type, writing in another, with scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_OPERATIONS = 2  # a product with the scale and a rounding, or a difference and a product

_SCALAR_TYPES = {  # c10/core/ScalarType.h: how a type is recorded where it is an argument
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64",
    12: "int8", 13: "uint8", 14: "int32", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8", 44: "e8m0",
}  # fmt: skip


def converted(arguments: Arguments) -> ModelledWork | None:
    """`input` to as many elements of another type, with `scale` and `zero` where those are tensors.

    The type is `settings.output`, a key of ELEMENT_BITS, or `input` for that of the input; without that setting the
    input `type`, by its number in PyTorch. `settings.mask`: a mask of what was clipped is written too.
    """
    source = arguments.tensor("input")
    kind = _output_type(arguments, source) if source is not None else None
    if source is None or kind is None:
        return None
    read = sum(t.bytes for t in (source, arguments.tensor("scale"), arguments.tensor("zero")) if t is not None)
    written = Tensor(source.shape, kind).bytes + (source.elements if arguments.settings.get("mask") else 0)
    return ModelledWork(0, _OPERATIONS * source.elements, read, written)


def _output_type(arguments: Arguments, source: Tensor) -> str | None:
    output = arguments.settings.get("output")
    if output is not None:
        return source.element_type if output == "input" else str(output)
    number = arguments.value("type")
    kind = _SCALAR_TYPES.get(number) if type(number) is int else None
    return kind if kind in ELEMENT_BITS else None


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {"converted": converted}
