"""What an operator must do at least, from the shapes of its inputs: flops, and bytes of its tensors.

Shapes and types are as PyTorch's profiler writes them (`Input Dims`, `Input type`). It does not write outputs: those
of products and elementwise operators follow from the inputs, those of convolutions from their stride and padding too
(see `modelled_convolutions`). An output that the caller gives (`out=`) stands among the inputs, behind the operator's
own arguments: it is written, not read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.frames.modelled_convolutions import CONVOLUTIONS, Product, convolution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["MODELLED", "NOTHING", "Tensor", "Work", "modelled", "tensors"]

_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "long": 8,
    "long int": 8,
    "int": 4,
    "short": 2,
    "short int": 2,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}
_ELEMENTWISE = frozenset(
    f"aten::{name}{suffix}"
    for name in (
        "abs", "add", "clamp", "div", "elu", "exp", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mul",
        "neg", "pow", "relu", "relu6", "rsqrt", "sigmoid", "silu", "sqrt", "sub", "tanh",
    )
    for suffix in ("", "_")
)  # fmt: skip
_NORMALISING = frozenset(
    f"aten::{name}" for name in ("batch_norm", "group_norm", "instance_norm", "layer_norm", "log_softmax", "softmax")
)
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "alias", "as_strided", "chunk", "detach", "detach_", "dropout", "expand", "expand_as", "flatten", "narrow",
        "permute", "reshape", "select", "size", "slice", "split", "squeeze", "squeeze_", "t", "transpose", "unbind",
        "unsqueeze", "unsqueeze_", "view", "view_as", "_unsafe_view", "contiguous", "to", "movedim", "unflatten",
    )
)  # fmt: skip
_PARTLY_READ = _VIEWS | frozenset(
    f"aten::{name}"
    for name in (
        "copy_", "empty", "empty_like", "embedding", "embedding_bag", "fill_", "full_like", "gather", "index",
        "index_copy_", "index_put_", "index_select", "masked_scatter_", "new_empty", "new_zeros", "ones_like",
        "resize_", "scatter", "scatter_", "scatter_add_", "take", "zero_", "zeros_like",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its dimensions, and the size of an element in bytes."""

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def bytes(self) -> int:
        """Its size, were it stored without gaps."""
        return prod(self.shape) * self.element_bytes


@dataclass(frozen=True, slots=True)
class Work:
    """What one call does at least; None: not modelled. Bytes are of whole tensors, each counted once."""

    flop: int | None = None  # of products alone
    elements: int = 0  # gone through by the rest, with a few flops each that are not modelled
    input_bytes: int | None = None
    output_bytes: int | None = None


NOTHING = Work()
"""An operator of which nothing is known."""


def tensors(shapes: str | None, dtypes: str | None) -> list[Tensor | None] | None:
    """The inputs in order, None for what is no tensor (scalars, absent ones); None where they are not all known."""
    if not shapes or not dtypes:
        return None
    dims, types = json.loads(shapes), json.loads(dtypes)
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        return None
    inputs: list[Tensor | None] = []
    for shape, kind in zip(dims, types, strict=True):
        if kind in _BYTES and isinstance(shape, list) and all(type(d) is int and d >= 0 for d in shape):
            inputs.append(Tensor(tuple(shape), _BYTES[kind]))
        elif shape:  # a list of tensors, or of a type whose size is not known
            return None
        else:
            inputs.append(None)
    return inputs


def modelled(
    name: str, inputs: Sequence[Tensor | None] | None, concrete: str | None = None, following: Tensor | None = None
) -> Work:
    """The work of one call; `concrete`: its inputs that are no tensors; `following`: what the next one takes first."""
    inputs = (inputs or ())[: _ARGUMENTS.get(name)]  # what is behind them is an `out=`
    operands = [t for t in inputs if t is not None]
    if not operands:
        return NOTHING
    if name in _VIEWS:
        return Work(flop=0)
    read = None if name in _PARTLY_READ else sum(t.bytes for t in operands)
    if name in _NORMALISING or name in _ELEMENTWISE:
        largest = max(operands, key=lambda t: prod(t.shape))
        written = operands[0] if name in _NORMALISING else Tensor(_broadcast(operands), operands[0].element_bytes)
        return Work(0, prod(largest.shape), read, written.bytes if written.shape else None)
    if name in CONVOLUTIONS:
        shapes = [None if t is None else t.shape for t in inputs]
        product = convolution(name, shapes, concrete, None if following is None else following.shape)
    else:
        product = _PRODUCTS[name](inputs) if name in _PRODUCTS else None
    if product is None:
        return Work(input_bytes=read)
    return Work(2 * product.multiply_adds, 0, read, prod(product.output) * operands[0].element_bytes)


def _broadcast(operands: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape that these are brought to; () where they cannot be."""
    rank = max(len(t.shape) for t in operands)
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in operands]
    sizes = [{d for d in dims if d != 1} for dims in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        return ()
    return tuple(size.pop() if size else 1 for size in sizes)


def _linear(inputs: Sequence[Tensor | None]) -> Product | None:
    features, weight = _pair(inputs, 0, 1)
    if features is None or weight is None or len(weight.shape) != _MATRIX or features.shape[-1:] != weight.shape[-1:]:
        return None
    output = (*features.shape[:-1], weight.shape[0])
    return Product(weight.shape[1] * prod(output), output)


def _matrices(first: int) -> Callable[[Sequence[Tensor | None]], Product | None]:
    """Products of (batches of) matrices, the first of which is the input of that number."""

    def product(inputs: Sequence[Tensor | None]) -> Product | None:
        left, right = _pair(inputs, first, first + 1)
        if left is None or right is None or min(len(left.shape), len(right.shape)) < _MATRIX:
            return None
        rank = max(len(left.shape), len(right.shape)) - _MATRIX
        batches = [Tensor(t.shape[:-_MATRIX], 0) for t in (left, right)]
        batch = _broadcast(batches)
        if left.shape[-1] != right.shape[-2] or len(batch) != rank:
            return None
        output = (*batch, left.shape[-2], right.shape[-1])
        return Product(left.shape[-1] * prod(output), output)

    return product


def _pair(inputs: Sequence[Tensor | None], first: int, second: int) -> tuple[Tensor | None, Tensor | None]:
    return (inputs[first], inputs[second]) if len(inputs) > second else (None, None)


_MATRIX = 2
_PRODUCTS: Mapping[str, Callable[[Sequence[Tensor | None]], Product | None]] = {
    "aten::linear": _linear,
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul"), _matrices(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), _matrices(1)),
}
_ARGUMENTS: Mapping[str, int] = {  # how many an operator has without `out=`; of elementwise ones the tensors come first
    **dict.fromkeys(_ELEMENTWISE, 1),
    **dict.fromkeys((f"aten::{name}{suffix}" for name in ("mul", "div", "pow") for suffix in ("", "_")), 2),
    **dict.fromkeys((f"aten::{name}{suffix}" for name in ("add", "sub", "clamp") for suffix in ("", "_")), 3),
    **dict.fromkeys(("aten::softmax", "aten::log_softmax", "aten::linear"), 3),
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul"), 2),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), 5),
}

MODELLED = frozenset(_PRODUCTS) | CONVOLUTIONS | _ELEMENTWISE | _NORMALISING | _VIEWS
"""The operators whose work can be modelled, where their shapes allow it."""
