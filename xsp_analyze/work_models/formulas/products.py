"""Products of matrices, convolutions and recurrent cells: two flop a multiply-add, eight a complex one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor, broadcast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments

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

__all__ = ["FORMULAS"]


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


# Recurrent cells: the products of their gates over all steps.
#
# Every row of a step is multiplied by every weight matrix of every layer and direction once, so that the flop are two
# a
# weight and row, whatever the cell is. Lists of tensors have the type of the input, as profilers do not write it.


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
    return ModelledWork(2 * rows * _elements(matrices), 2 * rows * gates, read, _bytes_written(arguments, states, rows))


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


def _bytes_written(arguments: Arguments, states: Sequence[Tensor], rows: int) -> int | None:
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


# What a convolution multiplies and puts out, from the shapes of image and filter, stride, padding and dilation.
#
# Those are in `Concrete Inputs`, which PyTorch's profiler writes since torch 2.1; padding by name, `same`, it writes
# as
# nothing, and the operators inside have it in numbers. Without them the output is taken from the first input of the
# operator that runs next, if batch and channels agree.

_Shape = tuple[int, ...]
_UNSAID = {"dilation": 1, "output_padding": 0, "groups": 1}  # what an operator without such an argument does


@dataclass(frozen=True, slots=True)
class _Geometry:
    """A convolution's settings, each for every dimension of space."""

    stride: _Shape
    padding: _Shape
    dilation: _Shape
    output_padding: _Shape
    groups: int
    transposed: bool

    def output(self, image: _Shape, weight: _Shape) -> _Shape:
        """The output's shape: `Conv2d` and `ConvTranspose2d` of PyTorch's documentation, section Shape."""
        space = zip(
            image[-len(self.stride) :],
            weight[2:],
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
            strict=True,
        )
        channels = weight[1] * self.groups if self.transposed else weight[0]
        sizes = [
            (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
            if self.transposed
            else (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation, more in space
        ]
        return (*image[: -len(self.stride) - 1], channels, *sizes)


def convolution(arguments: Arguments) -> ModelledWork | None:
    """`image` (batch, channels, ...) by `weight`, all operands read; None where nothing tells the output's shape.

    `settings.transposed`: whether it always is; else the input of that name says. `settings.depthwise`: there are as
    many groups as channels.
    """
    image, weight = arguments.tensor("image"), arguments.tensor("weight")
    dimensions = len(weight.shape) - 2 if weight else 0
    if image is None or weight is None or dimensions < 1 or len(image.shape) not in {dimensions + 1, dimensions + 2}:
        return None
    geometry = _geometry(arguments, image, weight)
    if geometry is None:
        return None if _is_transposed(arguments) else _as_followed(arguments, image, weight)
    channels = weight.shape[0] if geometry.transposed else weight.shape[1] * geometry.groups
    output = geometry.output(image.shape, weight.shape)
    if image.shape[-dimensions - 1] != channels or min(output) < 0:
        return None
    positions = image.shape if geometry.transposed else output  # each channel takes or gives a filter's product
    return _convolution_work(arguments, prod(positions) * prod(weight.shape[1:]), image, output)


def convolution_backward(arguments: Arguments) -> ModelledWork | None:
    """The gradients that `mask` asks for of `image`, `weight` and bias, from the output's: `gradient`.

    Those of image and weight each take the multiply-adds of the convolution itself, that of the bias one addition an
    element. Files do not have the mask before torch 2.1. `settings.inside`: operators inside tell as much; else None.
    """
    gradient, image, weight = (arguments.tensor(role) for role in ("gradient", "image", "weight"))
    mask = _mask(arguments)
    if gradient is None or image is None or weight is None or mask is None:
        return None
    if len(gradient.shape) != len(image.shape) or len(image.shape) != len(weight.shape) or len(weight.shape) <= 1:
        return None
    of_image, of_weight, of_bias = mask
    channels = gradient.shape[1]
    positions = image if _is_transposed(arguments) else gradient
    flop = 2 * positions.elements * prod(weight.shape[1:]) * (of_image + of_weight)
    read = gradient.bytes + weight.bytes * of_image + image.bytes * of_weight
    written = image.elements * of_image + weight.elements * of_weight + channels * of_bias
    return ModelledWork(flop, gradient.elements * of_bias, read, image.like((written,)).bytes)


def _mask(arguments: Arguments) -> tuple[bool, bool, bool] | None:
    value = arguments.value("mask")
    if not isinstance(value, list):
        ends = tuple(f"_backward_{of}" for of in ("input", "weight", "bias"))
        value = [any(name.endswith(end) for name in arguments.call.inner) for end in ends]
        value = value if any(value) else []
    if len(value) not in {2, 3}:
        return None
    image, weight, bias = (bool(each) for each in [*value, False][:3])
    return image, weight, bias


def _convolution_work(arguments: Arguments, multiply_adds: int, image: Tensor, output: _Shape) -> ModelledWork:
    operands = (arguments.tensor(role) for role in arguments.operands)
    return ModelledWork(2 * multiply_adds, 0, sum(t.bytes for t in operands if t is not None), image.like(output).bytes)


def _as_followed(arguments: Arguments, image: Tensor, weight: Tensor) -> ModelledWork | None:
    following = arguments.call.following
    if following is None or not len(following.shape) == len(image.shape) == len(weight.shape):
        return None
    if following.shape[:2] != (image.shape[0], weight.shape[0]):
        return None
    return _convolution_work(arguments, prod(weight.shape[1:]) * following.elements, image, following.shape)


def _is_transposed(arguments: Arguments) -> bool:
    return bool(arguments.settings.get("transposed", arguments.value("transposed", default=False)))


def _geometry(arguments: Arguments, image: Tensor, weight: Tensor) -> _Geometry | None:
    """The settings that the call was recorded with; None where they were not, or are not known."""
    dimensions, transposed = len(weight.shape) - 2, _is_transposed(arguments)
    stride, padding, dilation, output_padding = (
        _sizes(arguments.value(role, None if role in arguments.operands else _UNSAID.get(role)), dimensions)
        for role in ("stride", "padding", "dilation", "output_padding")
    )
    if not transposed:
        output_padding = (0,) * dimensions
    groups = (image.shape[-dimensions - 1],) if arguments.settings.get("depthwise") else _groups(arguments)
    if stride is None or padding is None or dilation is None or output_padding is None or groups is None:
        return None
    if min(*stride, *groups) < 1:
        return None
    return _Geometry(stride, padding, dilation, output_padding, groups[0], transposed)


def _groups(arguments: Arguments) -> _Shape | None:
    return _sizes(arguments.value("groups", None if "groups" in arguments.operands else _UNSAID["groups"]), 1)


def _sizes(value: object, dimensions: int) -> _Shape | None:
    """`[1, 2]`, or one number for all; None where it is neither: padding by name, `same`, is recorded as nothing."""
    values = value if isinstance(value, list) else [value]
    sizes = tuple(size for size in values if type(size) is int)
    if not sizes or len(sizes) != len(values):
        return None
    sizes = sizes * dimensions if len(sizes) == 1 else sizes
    return sizes if len(sizes) == dimensions else None


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "grouped_product": grouped_product,
    "half_product": half_product,
    "linear": linear,
    "matrix_product": matrix_product,
    "product_backward": product_backward,
    "weight_only_product": weight_only_product,
    "fused_cell": fused_cell,
    "recurrent": recurrent,
    "recurrent_backward": recurrent_backward,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
}
