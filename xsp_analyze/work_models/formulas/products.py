"""Products of matrices: two flop a multiply-add, eight a complex one.

Every operand that has a role is read once, but for `output`, which the caller gives and which tells the type that is
written. What is fused behind the product (bias, activation, scaling) is read, and its arithmetic is not counted.

Settings that all formulas here take: `output`, the element type of the output, if not the first factor's; `pairs`, that
a uint8 element is two values of 4 bits (FP4), as shapes count them in bytes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor
from xsp_analyze.work_models.results import broadcast
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]

_MATRIX = 2
_BATCH = 3
_PAIR_BITS = 4
_COMPLEX_PARTS = 4  # real multiply-adds of a complex one
_COMPUTED_IN = {"fp8": "fp8", "int8": "int8", "uint8": "int8"}
_WRITTEN = {"output", "output_type"}  # a place may hold either, in overloads
_TYPE_NUMBERS = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 15: "bf16",
    23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
}  # fmt: skip
"""PyTorch's c10::ScalarType, by which an `out_dtype` is recorded."""


def matrix_product(arguments: Arguments) -> ModelledWork | None:
    """`left` (..., m, k) by `right` (..., k, n), batches broadcast; a factor of one dimension is a vector.

    `settings.summed`: the products of a batch are added up to one matrix.
    """
    left, right = arguments.tensor("left"), arguments.tensor("right")
    if left is None or right is None or not left.shape or not right.shape:
        return None
    batch = broadcast([left.like(left.shape[:-_MATRIX]), right.like(right.shape[:-_MATRIX])])
    if batch is None or left.shape[-1] != right.shape[-min(len(right.shape), _MATRIX)]:
        return None
    columns = right.shape[-1:] if len(right.shape) >= _MATRIX else ()
    matrix = (*left.shape[-_MATRIX:-1], *columns)
    shape = matrix if arguments.settings.get("summed") else (*batch, *matrix)
    return _work(arguments, left, prod(batch) * prod(matrix) * left.shape[-1], shape)


def linear(arguments: Arguments) -> ModelledWork | None:
    """`features` (..., k) by a `weight` of k times n elements, in whichever layout a kernel takes it.

    `settings.weight_bits`: of one weight, where elements hold several: shapes of packed weights tell no more than this.
    """
    features, weight = arguments.tensor("features"), arguments.tensor("weight")
    if features is None or weight is None or not features.shape:
        return None
    depth = _values(arguments, features) // max(prod(features.shape[:-1]), 1)
    columns, rest = divmod(_values(arguments, weight, "weight_bits"), max(depth, 1))
    plain = not arguments.settings.get("weight_bits")
    if rest or depth == 0 or (plain and features.shape[-1] not in weight.shape):
        return None
    return _work(arguments, features, prod(features.shape[:-1]) * depth * columns, (*features.shape[:-1], columns))


def weight_only_product(arguments: Arguments) -> ModelledWork | None:
    """`features` (..., k) by integer weights that are packed, k and n told by `features` and by what scales a column.

    Versions of these kernels put their arguments in different places. The weights are the first tensor of integers,
    and the first of floats behind them ends in n: scales (groups, n) or a bias (n). Products are computed in the
    features' type.
    """
    features = arguments.tensor("features")
    tensors = [each for each in arguments.call.inputs[1:] if isinstance(each, Tensor) and each.elements]
    first = next((i for i, each in enumerate(tensors) if each.element_type in _INTEGERS), None)
    if features is None or not features.shape or first is None:
        return None
    columns = next((t.shape[-1] for t in tensors[first:] if t.element_type not in _INTEGERS and t.shape), 0)
    depth = features.shape[-1]
    if not columns or not depth or tensors[first].bytes * 8 // (columns * depth) not in _WEIGHT_BITS:
        return None
    output = features.like((*features.shape[:-1], columns))
    written = sum(t.bytes for t in tensors[:first] if t.shape == output.shape)  # an output may stand before the weights
    read = features.bytes + sum(t.bytes for t in tensors) - written
    return ModelledWork(2 * output.elements * depth, 0, read, output.bytes)


_INTEGERS = frozenset({"int8", "uint8", "int16", "int32", "int64"})
_WEIGHT_BITS = range(2, 9)


def grouped_product(arguments: Arguments) -> ModelledWork | None:
    """A product for each group: rows of `left`, columns of `right` or the depth of both are split at `offsets`.

    Where they split is not recorded, and the flop do not depend on it: rows beyond the last offset count with the rest.
    """
    left, right, offsets = (arguments.tensor(role) for role in ("left", "right", "offsets"))
    if left is None or right is None or {len(left.shape), len(right.shape)} - {_MATRIX, _BATCH}:
        return None
    packed = _values(arguments, left) // max(left.elements, 1)
    depth = left.shape[-1]
    if right.shape[-2] != depth:
        if len(right.shape) != _BATCH or right.shape[-1] != depth or not arguments.settings.get("transposed"):
            return None
        right = right.like((right.shape[0], depth, right.shape[1]))
    matrix = (left.shape[-2], right.shape[-1])
    shapes = {
        (_MATRIX, _BATCH): matrix,
        (_BATCH, _MATRIX): matrix,
        (_BATCH, _BATCH): (left.shape[0], *matrix),
        (_MATRIX, _MATRIX): (offsets.elements if offsets else 1, *matrix),
    }
    shape = shapes[len(left.shape), len(right.shape)]
    groups = left.shape[0] if len(left.shape) == len(right.shape) == _BATCH else 1
    return _work(arguments, left, groups * prod(matrix) * depth * packed, shape)


def half_product(arguments: Arguments) -> ModelledWork | None:
    """`sparse` holds 2 of each 4 values of a matrix (m, k), in (m, k / 2); `dense` is the other factor, of k times n.

    Counts the multiply-adds that are done, half of the dense product's: the least work, which compares with the peak of
    dense products. `settings.compressed`: `sparse` is one buffer of values and places, a share of m times k.
    """
    sparse, dense = arguments.tensor("sparse"), arguments.tensor("dense")
    if sparse is None or dense is None or not sparse.elements or not dense.elements:
        return None
    if arguments.settings.get("compressed"):
        depth = dense.shape[0]
        sixteenths = 10 if ELEMENT_BITS[sparse.element_type] == _BYTE_BITS else 9
        rows = sparse.elements * 16 // (sixteenths * depth)
    else:
        depth, rows = 2 * sparse.shape[-1], sparse.shape[0]
    columns, rest = divmod(dense.elements, depth)
    if rest or depth not in dense.shape:
        return None
    return _work(arguments, dense, rows * depth // 2 * columns, (rows, columns))


_BYTE_BITS = 8


def product_backward(arguments: Arguments) -> ModelledWork | None:
    """The gradients of both factors, as `mask` says which: each takes the multiply-adds of the product itself."""
    left, right, gradient = (arguments.tensor(role) for role in ("left", "right", "gradient"))
    mask = arguments.value("mask")
    if left is None or right is None or gradient is None or not left.shape or not isinstance(mask, list):
        return None
    computed = [bool(each) for each in mask] + [False]
    bias = gradient.shape[-1] if computed[2] and gradient.shape else 0
    read = gradient.bytes + right.bytes * computed[0] + left.bytes * computed[1]
    written = left.elements * computed[0] + right.elements * computed[1] + bias
    flop = 2 * gradient.elements * left.shape[-1] * sum(computed[:2])
    return ModelledWork(flop, gradient.elements * computed[2], read, gradient.like((written,)).bytes)


def _values(arguments: Arguments, tensor: Tensor, bits_setting: str = "") -> int:
    """How many values a tensor holds, where an element may hold several."""
    bits = arguments.settings.get(bits_setting)
    if not isinstance(bits, int):
        paired = arguments.settings.get("pairs") and tensor.element_type == "uint8"
        bits = _PAIR_BITS if paired else ELEMENT_BITS[tensor.element_type]
    return tensor.elements * ELEMENT_BITS[tensor.element_type] // bits


def _work(arguments: Arguments, factor: Tensor, multiply_adds: int, shape: tuple[int, ...]) -> ModelledWork:
    read = [arguments.tensor(role) for role in arguments.operands if role not in _WRITTEN]
    output = Tensor(shape, _output_type(arguments, factor))
    precision = _COMPUTED_IN.get(factor.element_type)
    if factor.element_type == "uint8" and arguments.settings.get("pairs"):
        precision = "fp4"
    flop = 2 * multiply_adds * (_COMPLEX_PARTS if factor.element_type.startswith("complex") else 1)
    return ModelledWork(flop, 0, sum(t.bytes for t in read if t is not None), output.bytes, precision=precision)


def _output_type(arguments: Arguments, factor: Tensor) -> str:
    output, number = arguments.tensor("output"), arguments.value("output_type")
    if output is not None:
        return output.element_type
    if isinstance(number, int) and number in _TYPE_NUMBERS:
        return _TYPE_NUMBERS[number]
    return str(arguments.settings.get("output", factor.element_type))


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "grouped_product": grouped_product,
    "half_product": half_product,
    "linear": linear,
    "matrix_product": matrix_product,
    "product_backward": product_backward,
    "weight_only_product": weight_only_product,
}
