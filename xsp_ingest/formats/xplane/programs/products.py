"""Arithmetic of products, convolutions and attention, two flop a multiply-add, from sizes and attributes."""

from __future__ import annotations

import json
from math import gcd, isqrt, prod
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.xplane.messages import message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.formats.xplane.programs.arrays import Array
    from xsp_ingest.formats.xplane.programs.graph import Computation, Instruction

__all__ = ["convolution_flop", "dot_flop", "is_library_call", "library_flop", "valid_positions"]

_MAX_STEPS = 1 << 20
_MAX_DIGITS = 18
_FORWARD_PRODUCTS = 2
_BACKWARD_PRODUCTS = 5  # the weights again, then one product for each gradient but of the weights two
_CONVOLUTIONS: Mapping[str, tuple[int, int, int]] = {  # where input, filter and output are; -1: the result
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}
_MATMULS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx")
_ATTENTION = "__cudnn$fmha"


def dot_flop(computation: Computation, one: Instruction) -> int:
    """Of `dot`: each element of the result is a sum over the contracted dimensions."""
    dimensions = message("HloDotDimensions").FromString(one.message.dot_dimensions)
    return _product_flop(one.result[0], computation.operand(one, 0), dimensions.lhs_contracting)


def _product_flop(result: Array, left: Array, contracted: Sequence[int]) -> int:
    return 2 * result.elements * prod(_size(left, dimension) for dimension in contracted)


def _size(array: Array, dimension: int) -> int:
    if not 0 <= dimension < len(array.sizes):
        raise ValueError("a dimension that the array does not have")
    return array.sizes[dimension]


def convolution_flop(computation: Computation, one: Instruction) -> int:
    """Of `convolution`: multiplications with padding, and with what dilation puts between, are none."""
    arrays = computation.operand(one, 0), computation.operand(one, 1), one.result[0]
    return _convolution_flop(one, *arrays)


def _convolution_flop(one: Instruction, data: Array, kernel: Array, output: Array) -> int:
    """By the window and the dimensions of the forward convolution, whichever of the three is the result."""
    raw = one.message
    numbers = message("HloConvolutionDimensions").FromString(raw.convolution_dimensions)
    window = message("HloWindow").FromString(raw.window).dimensions
    spatial = list(zip(window, numbers.input_spatial, numbers.output_spatial, strict=True))
    batch = _size(data, numbers.input_batch)
    points = prod(_size(data, dimension) for dimension in numbers.input_spatial)
    features_in = data.elements // max(batch * points, 1)  # vectorised layouts part them into two dimensions
    kernel_points = prod(each.size for each in window)
    positions = prod(valid_positions(each, _size(data, at), _size(output, to)) for each, at, to in spatial)
    features_out = kernel.elements * max(raw.feature_group_count, 1) // max(kernel_points * features_in, 1)
    groups = max(raw.feature_group_count, 1) * max(raw.batch_group_count, 1)
    return int(2 * positions * batch * features_in * features_out // groups)


def valid_positions(window: Any, size: int, outputs: int) -> int:  # noqa: ANN401 (a message of protobuf)
    """How many pairs of an output and an element of the window meet an element of the input, in one dimension."""
    steps = [(outputs, max(window.stride, 1)), (window.size, max(window.window_dilation, 1))]
    (few, few_step), (many, many_step) = sorted(steps)
    apart = max(window.base_dilation, 1)
    if not 0 <= few <= _MAX_STEPS:
        raise ValueError("a window larger than any")
    last = (size - 1) * apart  # negative, and nothing fits, where there is no element
    offsets = (step * few_step - window.padding_low for step in range(few))
    return sum(_multiples(apart, last, offset, many_step, many) for offset in offsets)


def _multiples(apart: int, last: int, offset: int, step: int, count: int) -> int:
    """How many of `offset + i * step`, i below count, lie in 0..last and are multiples of `apart`."""
    common = gcd(step, apart)
    if offset % common:
        return 0
    period = apart // common
    first = (-offset // common) * pow(step // common, -1, period) % period if period > 1 else 0
    low = max(-(offset // step), 0)
    high = min((last - offset) // step, count - 1)
    start = low + (first - low) % period
    return (high - start) // period + 1 if high >= start else 0


def is_library_call(one: Instruction) -> bool:
    """Whether a custom call is one whose arithmetic is known: a product, a convolution or attention."""
    target = one.target
    return target in _MATMULS or target in _CONVOLUTIONS or target.startswith(_ATTENTION)


def library_flop(computation: Computation, one: Instruction) -> int | None:
    """Of a call of cuBLAS, cuDNN or what stands for them on other devices; None where its settings do not tell."""
    target = one.target
    if target in _CONVOLUTIONS:
        arrays = [one.result[0] if at < 0 else computation.operand(one, at) for at in _CONVOLUTIONS[target]]
        return _convolution_flop(one, *arrays)
    settings = _settings(one)
    if target in _MATMULS:
        return _matmul_flop(computation, one, _part(settings, "gemm_backend_config") or settings)
    if target.startswith(_ATTENTION):
        return _attention_flop(computation, one, _part(settings, "cudnn_fmha_backend_config") or settings)
    return None


def _settings(one: Instruction) -> dict[str, Any]:
    raw = one.message.backend_config
    settings = json.loads(raw) if raw.startswith(b"{") else {}
    return settings if isinstance(settings, dict) else {}


def _matmul_flop(computation: Computation, one: Instruction, settings: dict[str, Any]) -> int | None:
    left, right, result = computation.operand(one, 0), computation.operand(one, 1), one.result[0]
    numbers = _part(settings, "dot_dimension_numbers")
    if numbers:
        return _product_flop(result, left, _integers(numbers.get("lhs_contracting_dimensions")))
    if {len(each.sizes) for each in (left, right, result)} != {2} or not result.elements:
        return None
    square = left.elements * right.elements // result.elements  # m k * k n / m n
    return 2 * result.elements * isqrt(square) if isqrt(square) ** 2 == square else None


def _attention_flop(computation: Computation, one: Instruction, settings: dict[str, Any]) -> int | None:
    """Products of queries with keys and weights with values over the pairs that the mask leaves.

    Values are taken to be as long as keys. None with padding, whose lengths the program does not hold.
    """
    sizes = _integers(_part(settings, "intermediate_tensor_shape").get("dimensions"))
    if len(sizes) != 4 or "PADDING" in str(settings.get("mask_type", "")):  # noqa: PLR2004 (batch, heads, two lengths)
        return None
    batch, heads, queries, keys = sizes
    length = computation.operand(one, 0).elements // max(batch * heads * queries, 1)
    window = _integers([settings.get("sliding_window_length") or 0])[0]
    if "CAUSAL" in str(settings.get("mask_type", "")):
        pairs = _causal_pairs(queries, min(window, keys) if window > 0 else keys)
    else:
        pairs = queries * keys
    products = _BACKWARD_PRODUCTS if "Backward" in one.target else _FORWARD_PRODUCTS
    return 2 * products * batch * heads * pairs * length


def _causal_pairs(queries: int, at_most: int) -> int:
    """Of queries each of which attends to itself and those before, at most so many in all."""
    growing = min(queries, at_most)
    return growing * (growing + 1) // 2 + (queries - growing) * at_most


def _integers(values: object) -> list[int]:
    """Numbers as the settings' JSON has them, mostly as texts; ValueError where they are none."""
    texts = [str(value) for value in values] if isinstance(values, list) else []
    if not all(text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS for text in texts):
        raise ValueError("settings that are no whole numbers")
    return [int(text) for text in texts]


def _part(settings: dict[str, Any], key: str) -> dict[str, Any]:
    part = settings.get(key)
    return part if isinstance(part, dict) else {}
