"""What a convolution multiplies and puts out, from the shapes of image and filter, stride, padding and dilation.

Those are in `Concrete Inputs`, which PyTorch's profiler writes since torch 2.1; padding by name, `same`, it writes as
nothing, and the operators inside have it in numbers. Without them the output is taken from the first input of the
operator that runs next, if batch and channels agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments
    from xsp_analyze.work_models.call import Tensor

__all__ = ["FORMULAS"]

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
        return None if _transposed(arguments) else _as_followed(arguments, image, weight)
    channels = weight.shape[0] if geometry.transposed else weight.shape[1] * geometry.groups
    output = geometry.output(image.shape, weight.shape)
    if image.shape[-dimensions - 1] != channels or min(output) < 0:
        return None
    positions = image.shape if geometry.transposed else output  # each channel takes or gives a filter's product
    return _work(arguments, prod(positions) * prod(weight.shape[1:]), image, output)


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
    positions = image if _transposed(arguments) else gradient
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


def _work(arguments: Arguments, multiply_adds: int, image: Tensor, output: _Shape) -> ModelledWork:
    operands = (arguments.tensor(role) for role in arguments.operands)
    return ModelledWork(2 * multiply_adds, 0, sum(t.bytes for t in operands if t is not None), image.like(output).bytes)


def _as_followed(arguments: Arguments, image: Tensor, weight: Tensor) -> ModelledWork | None:
    following = arguments.call.following
    if following is None or not len(following.shape) == len(image.shape) == len(weight.shape):
        return None
    if following.shape[:2] != (image.shape[0], weight.shape[0]):
        return None
    return _work(arguments, prod(weight.shape[1:]) * following.elements, image, following.shape)


def _transposed(arguments: Arguments) -> bool:
    return bool(arguments.settings.get("transposed", arguments.value("transposed", default=False)))


def _geometry(arguments: Arguments, image: Tensor, weight: Tensor) -> _Geometry | None:
    """The settings that the call was recorded with; None where they were not, or are not known."""
    dimensions, transposed = len(weight.shape) - 2, _transposed(arguments)
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
    "convolution": convolution,
    "convolution_backward": convolution_backward,
}
