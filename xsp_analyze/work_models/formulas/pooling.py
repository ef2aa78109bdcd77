"""Pooling, padding and resampling: results whose sizes follow from windows, factors or sizes that are given."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor
from xsp_analyze.work_models.results import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.call import Arguments

__all__ = ["FORMULAS"]


def pooling(arguments: Arguments) -> ModelledWork | None:
    """Windows of `kernel` over the last dimensions of `input`: an operation for each element of each.

    `settings.dimensions`: over how many. `settings.indices`: where each maximum lay is written too.
    """
    tensor, count = arguments.tensor("input"), arguments.settings.get("dimensions")
    if tensor is None or not isinstance(count, int) or len(tensor.shape) < count:
        return None
    sizes = [_integers(arguments, role, count, default) for role, default in _WINDOW.items()]
    kernel, strides, paddings, dilations = sizes
    if kernel is None or paddings is None or dilations is None:
        return None
    rounds_up = arguments.value("ceil_mode") is True
    windows = [
        _windows(*each, rounds_up=rounds_up)
        for each in zip(tensor.shape[-count:], kernel, strides or kernel, paddings, dilations, strict=True)
    ]
    results = prod(tensor.shape[:-count]) * prod(windows)
    return _results_work(arguments, tensor, results, results * prod(kernel))


def resizing(arguments: Arguments) -> ModelledWork | None:
    """The last dimensions of `input` become `sizes`, or grow by `factors`; `settings.flop` for each element.

    The largest of the two, input and result, counts. `settings.last`: only so many of the given sizes, from the last.
    """
    tensor = arguments.tensor("input")
    sizes, factors = numbers(arguments.value("sizes")), numbers(arguments.value("factors"))
    count = len(sizes or factors or ())
    if tensor is None or not 0 < count <= len(tensor.shape):
        return None
    if sizes is None and factors is not None:
        sizes = [int(size * factor) for size, factor in zip(tensor.shape[-count:], factors, strict=True)]
    results = prod(tensor.shape[:-count]) * int(prod(sizes or ()))
    flop = arguments.settings.get("flop", 1)
    return _results_work(
        arguments, tensor, results, max(results, tensor.elements) * (flop if isinstance(flop, int) else 1)
    )


def edge_padded(arguments: Arguments) -> ModelledWork | None:
    """Each dimension of `input`, from the last, grows by two entries of `padding`: before and behind it."""
    tensor, padding = arguments.tensor("input"), numbers(arguments.value("padding"))
    if tensor is None or padding is None or len(padding) > 2 * len(tensor.shape):
        return None
    added = [int(before + behind) for before, behind in zip(padding[::2], padding[1::2], strict=True)]
    added += [0] * (len(tensor.shape) - len(added))
    return _results_work(
        arguments, tensor, prod(size + more for size, more in zip(tensor.shape[::-1], added, strict=True)), 0
    )


def grid_sampling(arguments: Arguments) -> ModelledWork | None:
    """`input` (batch, channels, ...) at the points of `grid` (batch, ..., coordinates), between its elements."""
    tensor, grid = arguments.tensor("input"), arguments.tensor("grid")
    if tensor is None or grid is None or len(tensor.shape) != len(grid.shape):
        return None
    if grid.shape[-1] != len(grid.shape) - 2:  # a point has a coordinate for each dimension of space
        return None
    results = tensor.shape[1] * prod(grid.shape[:-1])
    corners = 2 ** grid.shape[-1]
    work = _results_work(arguments, tensor, results, 2 * corners * results)
    return ModelledWork(0, work.vector_flop, (work.read_bytes or 0) + grid.bytes, work.written_bytes)


_WINDOW = {"kernel": None, "stride": None, "padding": 0, "dilation": 1}


def _integers(arguments: Arguments, role: str, count: int, default: int | None) -> list[int] | None:
    values = numbers(arguments.value(role))
    if not values:
        return None if default is None else [default] * count
    return [int(v) for v in values] * (count if len(values) == 1 else 1)


def _windows(size: int, kernel: int, stride: int, padding: int, dilation: int, *, rounds_up: bool) -> int:
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    windows = (room + (stride - 1 if rounds_up else 0)) // stride + 1
    starts_behind = rounds_up and (windows - 1) * stride >= size + padding
    return windows - 1 if starts_behind else windows


def _results_work(arguments: Arguments, tensor: Tensor, results: int, flop: int) -> ModelledWork:
    size = results * ELEMENT_BITS[tensor.element_type] // 8
    if arguments.settings.get("indices"):
        size += results * ELEMENT_BITS["int64"] // 8
    return ModelledWork(0, flop, tensor.bytes, size)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "pooling": pooling,
    "resizing": resizing,
    "edge_padded": edge_padded,
    "grid_sampling": grid_sampling,
}
