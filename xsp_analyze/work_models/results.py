"""What a call makes: the shape that operands are broadcast to, the type that they are promoted to, the bytes written.

A model's `settings.outputs` lists the results, each a table of

    like = "input"         # of this operand's shape; "broadcast" (the default): of that of all operands
    one = true             # one element; for a list one for each of its tensors
    parts = 2              # one element for so many
    channels = true        # one element for each of the second dimension
    without = "dims"       # not the dimensions that this input names; all where it names none
    resized = "k"          # with this many along the dimension `dim`, or the last
    over = "sizes"         # one element for so many as the product of this input
    product = ["n", "g"]   # as many elements as the product of these inputs, numbers or lists of them
    reduction = "r"        # one element, unless this input (an `at::Reduction`) is 0
    type = "int64"         # an element type, or an operand of that type; or
                           # "float": integers become fp32; "long": integers become int64; "wide": 16 bits become fp32
    when = "training"      # only if this input is true
    needed = 0             # only if the input `needed` (an output_mask) is true at this position, or was not recorded
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments

__all__ = ["SCALAR_TYPES", "broadcast", "number", "numbers", "promoted_type", "result_elements", "result_type"]

SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
    27: "int16", 28: "int32", 29: "int64",
}  # fmt: skip
"""Element types by the numbers of c10::ScalarType, as which the profiler writes a `dtype`."""

_NOT_READ = ("out", "shape")
_BOOL, _INTEGER, _FLOAT, _COMPLEX = range(4)
_DEFAULTS = ("bool", "int64", "fp32", "complex64")


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
    """The shape that these are brought to; None where they cannot be."""
    rank = max((len(t.shape) for t in tensors), default=0)
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in tensors]
    sizes = [{d for d in dims if d != 1} for dims in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        return None
    return tuple(size.pop() if size else 1 for size in sizes)


def promoted_type(tensors: Iterable[Tensor], scalars: Iterable[object] = ()) -> str | None:
    """The result type by torch: a scalar, and a tensor without dimensions, only counts if of a higher category.

    A double without dimensions counts as a Python number, which is what it nearly always is. None: there is no operand.
    """
    tensors = list(tensors)
    dimensioned = [t.element_type for t in tensors if t.shape]
    zero_dimensional = [t.element_type for t in tensors if not t.shape]
    numbers_of = [_DEFAULTS[_category_of_number(n)] for n in scalars if isinstance(n, bool | int | float)]
    of_scalars = [t if t != "fp64" or not dimensioned else "fp32" for t in zero_dimensional]
    result: str | None = None
    for types in (dimensioned, of_scalars, numbers_of):
        if types and (result is None or _category(reduce(_higher, types)) > _category(result)):
            result = reduce(_higher, types) if result is None else _higher(result, reduce(_higher, types))
    return result


def number(value: object) -> float | int | None:
    """The value as a number: the profiler writes 2.0 as `2.`; None where it is none."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def numbers(value: object) -> list[float | int] | None:
    """The value, a list or one number, as a list of numbers; None where it is none."""
    if isinstance(value, str) and value.startswith("["):
        value = [each.strip() for each in value.strip("[]").split(",")]
    listed = [number(each) for each in (value if isinstance(value, list) else [value])]
    return None if None in listed else [each for each in listed if each is not None]


def result_elements(
    arguments: Arguments, output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> int | None:
    """Elements of this result; 0 where it is not made; None where what was recorded does not tell."""
    if not _is_made(arguments, output):
        return 0
    if "product" in output:
        return _product(arguments, output["product"])
    base = _base(output, operands)
    if base is None:
        return None
    if isinstance(base, tuple):
        return len(base) if output.get("one") else sum(t.elements for t in base)
    if output.get("one") or _is_reduced(arguments, output):
        return 1
    return _elements(arguments, output, base)


def result_type(
    arguments: Arguments, output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> str | None:
    """The element type of this result. A `dtype` among the inputs decides that of those that name no element type."""
    kind, dtype = output.get("type"), number(arguments.value("dtype"))
    if kind in ELEMENT_BITS:
        return str(kind)
    if dtype is not None or arguments.value("half_to_float") is True:
        return "fp32" if dtype is None else SCALAR_TYPES.get(int(dtype))
    like = operands.get(str(kind), operands.get(str(output.get("like"))))
    listed = (like,) if isinstance(like, Tensor) else like
    types = promoted_type(listed) if listed else _operands_type(arguments, operands)
    return None if types is None else _wider_type(types, kind)


def _operands_type(arguments: Arguments, operands: Mapping[str, Tensor | tuple[Tensor, ...]]) -> str | None:
    tensors = [t for role, t in operands.items() if isinstance(t, Tensor) and not role.startswith((*_NOT_READ, "mask"))]
    scalars = [number(arguments.value(role)) for role in arguments.operands if role.startswith("input")]
    return promoted_type(tensors, scalars)


def _wider_type(element_type: str, kind: object) -> str:
    category, bits = _category(element_type), ELEMENT_BITS[element_type]
    if kind == "float" and category < _FLOAT:
        return "fp32"
    if kind == "long" and category < _FLOAT:
        return "int64"
    return "fp32" if kind == "wide" and category == _FLOAT and bits <= ELEMENT_BITS["fp16"] else element_type


def _is_made(arguments: Arguments, output: Mapping[str, object]) -> bool:
    needed, made = arguments.value("needed"), output.get("needed")
    if isinstance(needed, list) and isinstance(made, int) and made < len(needed) and not needed[made]:
        return False
    return "when" not in output or arguments.value(str(output["when"])) is True


def _is_reduced(arguments: Arguments, output: Mapping[str, object]) -> bool:
    return "reduction" in output and arguments.value(str(output["reduction"])) != 0


def _base(
    output: Mapping[str, object], operands: Mapping[str, Tensor | tuple[Tensor, ...]]
) -> Tensor | tuple[Tensor, ...] | None:
    if "like" in output:
        return operands.get(str(output["like"]))
    tensors = [t for role, t in operands.items() if isinstance(t, Tensor) and not role.startswith(_NOT_READ)]
    shape = broadcast(tensors) if tensors else None
    return None if shape is None else tensors[0].like(shape)


def _elements(arguments: Arguments, output: Mapping[str, object], base: Tensor) -> int | None:
    if output.get("channels"):
        return base.shape[1] if len(base.shape) > 1 else None
    if "without" in output:
        return _elements_left(base, numbers(arguments.value(str(output["without"]), [])))
    if "resized" in output:
        return _elements_resized(
            base, number(arguments.value("dim", -1)), number(arguments.value(str(output["resized"])))
        )
    parts = output.get("parts", 1)
    if "over" in output:
        sizes = numbers(arguments.value(str(output["over"])))
        parts = int(prod(sizes)) if sizes else None
    return base.elements // parts if isinstance(parts, int) and parts else None


def _elements_left(base: Tensor, dimensions: list[float | int] | None) -> int | None:
    rank = len(base.shape)
    if dimensions is None or any(not -rank <= d < rank for d in dimensions):
        return 1 if dimensions is not None and not rank else None
    reduced = {int(d) % rank for d in dimensions} or set(range(rank))
    return prod(size for at, size in enumerate(base.shape) if at not in reduced)


def _elements_resized(base: Tensor, dimension: float | None, size: float | None) -> int | None:
    rank = len(base.shape)
    if dimension is None or size is None or not -rank <= dimension < rank:
        return None
    shape = list(base.shape)
    shape[int(dimension)] = int(size)
    return prod(shape)


def _product(arguments: Arguments, roles: object) -> int | None:
    values = [numbers(arguments.value(role)) for role in roles] if isinstance(roles, list) else [None]
    return None if None in values else int(prod(n for each in values for n in each or ()))


def _category(element_type: str) -> int:
    if element_type.startswith("complex"):
        return _COMPLEX
    if element_type.startswith(("fp", "bf", "e8")):
        return _FLOAT
    return _BOOL if element_type == "bool" else _INTEGER


def _category_of_number(value: float) -> int:
    return _BOOL if isinstance(value, bool) else _INTEGER if isinstance(value, int) else _FLOAT


def _higher(one: str, other: str) -> str:
    """The type that elements of both become."""
    if one == other:
        return one
    low, high = sorted((one, other), key=lambda each: (_category(each), ELEMENT_BITS[each]))
    if {low, high} == {"fp16", "bf16"}:
        return "fp32"
    if {low, high} == {"int8", "uint8"}:
        return "int16"
    return "complex128" if high == "complex64" and low == "fp64" else high
