"""What a convolution multiplies and puts out, from the shapes of image and filter, stride, padding and dilation.

Those are in `Concrete Inputs`, which PyTorch's profiler writes since torch 2.1. Without them the output is taken from
the first input of the operator that runs next, if batch and channels agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CONVOLUTIONS", "Product", "convolution"]

_SIZES = ("stride", "padding", "dilation")
_ORDERS: Mapping[str, Sequence[str]] = {  # which argument is which, behind image and filter
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), ("bias", *_SIZES, "groups")),
    **dict.fromkeys(("convolution", "_convolution"), ("bias", *_SIZES, "transposed", "output_padding", "groups")),
    "conv_transpose1d": ("bias", "stride", "padding", "output_padding", "groups", "dilation"),
    "conv_transpose2d": ("bias", "stride", "padding", "output_padding", "groups", "dilation"),
    "conv_transpose3d": ("bias", "stride", "padding", "output_padding", "groups", "dilation"),
    "cudnn_convolution": ("padding", "stride", "dilation", "groups"),
    "miopen_convolution": ("bias", "padding", "stride", "dilation", "groups"),
}
CONVOLUTIONS = frozenset(f"aten::{name}" for name in _ORDERS)
"""The operators that are convolutions."""

_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """How many products are added up, and the shape of what comes out."""

    multiply_adds: int
    output: _Shape


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


def convolution(
    name: str, inputs: Sequence[_Shape | None], concrete: str | None, following: _Shape | None
) -> Product | None:
    """The work of one call; None where shapes do not fit, or nothing tells the output's."""
    image, weight = (*inputs[:2], None, None)[:2]
    dimensions = len(weight) - 2 if weight else 0
    if image is None or weight is None or dimensions < 1 or len(image) not in {dimensions + 1, dimensions + 2}:
        return None
    geometry = _geometry(name.removeprefix("aten::"), concrete, weight)
    if geometry is None:
        return _as_followed(image, weight, following) if "transpose" not in name else None
    channels = weight[0] if geometry.transposed else weight[1] * geometry.groups
    output = geometry.output(image, weight)
    if image[-dimensions - 1] != channels or min(output) < 0:
        return None
    positions = image if geometry.transposed else output  # of all channels: each takes or gives a filter's product
    return Product(prod(positions) * prod(weight[1:]), output)


def _as_followed(image: _Shape, weight: _Shape, following: _Shape | None) -> Product | None:
    if following is None or len(following) != len(image) or len(image) != len(weight):
        return None
    if following[:2] != (image[0], weight[0]):
        return None
    return Product(prod(weight[1:]) * prod(following), following)


def _geometry(name: str, concrete: str | None, weight: _Shape) -> _Geometry | None:
    """The settings that the call was recorded with; None where they were not, or are not known."""
    values = json.loads(concrete) if concrete else None
    order = _ORDERS.get(name, ())
    if not isinstance(values, list) or len(values) < len(order) + 2:
        return None
    settings = dict(zip(order, values[2:], strict=False))
    transposed = "transpose" in name or str(settings.get("transposed")) == "True"
    dimensions = len(weight) - 2
    stride, padding, dilation = (_sizes(settings[key], dimensions) for key in _SIZES)
    output_padding = _sizes(settings["output_padding"], dimensions) if transposed else (0,) * dimensions
    groups = _sizes(settings["groups"], 1)
    if stride is None or padding is None or dilation is None or output_padding is None or groups is None:
        return None
    if min(*stride, *groups) < 1:
        return None
    return _Geometry(stride, padding, dilation, output_padding, groups[0], transposed)


def _sizes(text: object, dimensions: int) -> _Shape | None:
    """`[1, 2]`, or one number for all; None where it is neither: padding by name, `same`, is recorded as nothing."""
    try:
        sizes = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    sizes = sizes if isinstance(sizes, list) else [sizes]
    if not sizes or not all(type(size) is int for size in sizes):
        return None
    sizes = sizes * dimensions if len(sizes) == 1 else sizes
    return tuple(sizes) if len(sizes) == dimensions else None
