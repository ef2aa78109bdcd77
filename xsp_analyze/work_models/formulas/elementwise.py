"""Operators whose operands stream through the device once, reductions, quantisation, and views."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import (
    ELEMENT_BITS,
    NOTHING,
    SCALAR_TYPES,
    ModelledWork,
    Tensor,
    number,
    numbers,
    result_elements,
    result_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments

__all__ = ["FORMULAS", "POOLING", "one_pass"]

Operands = dict[str, Tensor | tuple[Tensor, ...]]
_ONE_LIKE_ALL: Sequence[Mapping[str, object]] = ({},)


def one_pass(arguments: Arguments) -> ModelledWork | None:
    """The bytes of every operand once, and of every result; `settings.flop` for each element of the largest of them.

    Operands whose role begins with `out` are written, not read; with `shape`: of which only the shape counts; with
    `mask`: whose type does not count for the result's. `settings.outputs`: the results, as `results` has them. In place
    (the name ends in `_`) the result is the first operand; with lists and no `outputs` like the first one. A result but
    the first whose size was not recorded is left out: the least.
    """
    operands = _operands(arguments)
    if not operands:
        return None
    read = sum(_bytes(o) for role, o in operands.items() if not role.startswith(("out", "shape")))
    written = _bytes_written(arguments, operands)
    if written is None:
        return None
    elements = max([written[1], *(_elements(o) for role, o in operands.items() if not role.startswith("shape"))])
    flop = arguments.settings.get("flop", 1)
    return ModelledWork(0, elements * (flop if isinstance(flop, int) else 1), read, written[0])


def _operands(arguments: Arguments) -> Operands | None:
    """The tensors, and lists of them, by role; None where the size of a list's elements is not known."""
    operands: Operands = {}
    for role, index in arguments.operands.items():
        recorded = arguments.call.inputs[index] if index < len(arguments.call.inputs) else None
        if isinstance(recorded, tuple):
            listed = arguments.tensors(role)
            if listed is None:
                return None
            operands[role] = listed
        elif recorded is not None:
            operands[role] = recorded
    return operands


def _bytes_written(arguments: Arguments, operands: Operands) -> tuple[int, int] | None:
    """Bytes that are written, and elements of the first result."""
    outputs = arguments.settings.get("outputs")
    buffers = [o for role, o in operands.items() if role.startswith("out")]
    read_elements = [_elements(o) for role, o in operands.items() if not role.startswith("out")]
    if buffers and (any(map(_elements, buffers)) or not any(read_elements)):  # else it is made large enough later
        return sum(map(_bytes, buffers)), _elements(buffers[0])
    first = next(iter(operands.values()))
    if not isinstance(outputs, list):
        if _is_in_place(arguments) or isinstance(first, tuple):
            return _bytes(first), _elements(first)
        outputs = _ONE_LIKE_ALL
    results = [_result(arguments, output, operands) for output in outputs]
    if results[0] is None:
        return None
    return sum(size for size, _ in filter(None, results)), results[0][1]


def _is_in_place(arguments: Arguments) -> bool:
    return arguments.call.name.endswith("_") and arguments.settings.get("in_place", True) is True


def _result(arguments: Arguments, output: Mapping[str, object], operands: Operands) -> tuple[int, int] | None:
    elements = result_elements(arguments, output, operands)
    element_type = result_type(arguments, output, operands)
    if elements is None or element_type is None:
        return None
    return elements * ELEMENT_BITS[element_type] // 8, elements


def _bytes(operand: Tensor | tuple[Tensor, ...]) -> int:
    return operand.bytes if isinstance(operand, Tensor) else sum(t.bytes for t in operand)


def _elements(operand: Tensor | tuple[Tensor, ...]) -> int:
    return operand.elements if isinstance(operand, Tensor) else sum(t.elements for t in operand)


# Reductions, and results that numbers alone size.


def reduction(arguments: Arguments) -> ModelledWork | None:
    """`input` read once, `settings.flop` an element; the results as `one_pass` has them.

    With fewer inputs than `settings.full_below` it is the overload that reduces all dimensions, to the first result
    alone unless `settings.full_outputs` is "all"; its `dtype` is input `settings.full_dtype`. Dimensions that were not
    recorded count as all: the least that may be written. A tensor `other` makes it elementwise.
    """
    settings = arguments.settings
    if arguments.tensor("other") is not None:
        both = {"input": arguments.operands["input"], "other": arguments.operands["other"], "out": 2}
        return one_pass(replace(arguments, operands=both, settings={}))
    full_below, outputs = settings.get("full_below"), settings.get("outputs")
    operands = {role: index for role, index in arguments.operands.items() if role != "other"}
    if isinstance(full_below, int) and len(arguments.call.inputs) < full_below and isinstance(outputs, list):
        count = None if settings.get("full_outputs") == "all" else 1
        full_dtype = settings.get("full_dtype")
        operands = {"input": operands["input"]} | ({"dtype": full_dtype} if isinstance(full_dtype, int) else {})
        settings = {**settings, "outputs": outputs[:count]}
    return one_pass(replace(arguments, operands=operands, settings=settings))


def arange(arguments: Arguments) -> ModelledWork | None:
    """Numbers from a start to an end by steps, written; which inputs are which follows from how many there are.

    Their type is that of `out`, else the `dtype` recorded; else int64, of fractions fp32.
    """
    layout = _ARANGE.get(len(arguments.call.inputs))
    if layout is None:
        return None
    at = replace(arguments, operands=layout)
    start, end, step = (number(at.value(role, default)) for role, default in (("start", 0), ("end", None), ("step", 1)))
    if start is None or end is None or not step:
        return None
    out, dtype = at.tensor("out"), number(at.value("dtype"))
    is_integer = all(isinstance(each, int) for each in (start, end, step))
    element_type = out.element_type if out else SCALAR_TYPES.get(int(dtype)) if dtype is not None else None
    size = ELEMENT_BITS[element_type or ("int64" if is_integer else "fp32")] // 8
    elements = max(ceil((end - start) / step), 0)
    return ModelledWork(0, elements, 0, elements * size)


def creation(arguments: Arguments) -> ModelledWork | None:
    """What is written: the elements that numbers among the inputs count.

    `settings.layouts`: for each number of inputs that its overloads have, which are the `sizes`, `out` and `dtype`.
    `settings.type`: the type where neither of these was recorded.
    """
    layouts = arguments.settings.get("layouts")
    layout = layouts.get(str(len(arguments.call.inputs))) if isinstance(layouts, dict) else None
    if layout is None:
        return None
    roles = {str(at): index for at, index in enumerate(layout["sizes"])}
    at = replace(arguments, operands=roles | {role: index for role, index in layout.items() if role != "sizes"})
    sizes = [number(at.value(role)) for role in roles]
    out, dtype = at.tensor("out"), number(at.value("dtype"))
    element_type = out.element_type if out else SCALAR_TYPES.get(int(dtype)) if dtype is not None else None
    elements = int(prod(size for size in sizes if size is not None))
    size = ELEMENT_BITS[element_type or str(arguments.settings["type"])] // 8
    return None if None in sizes else ModelledWork(0, elements, 0, elements * size)


_ARANGE = {
    2: {"end": 0, "out": 1},
    4: {"start": 0, "end": 1, "step": 2, "out": 3},
    5: {"end": 0, "dtype": 1},
    6: {"start": 0, "end": 1, "dtype": 2},
    7: {"start": 0, "end": 1, "step": 2, "dtype": 3},
}


# Quantisation: reading in one type, writing in another, with scales.
_OPERATIONS = 2  # a product with the scale and a rounding, or a difference and a product
_SCALAR_TYPES = {  # c10/core/ScalarType.h: how a type is recorded where it is an argument
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64",
    12: "int8", 13: "uint8", 14: "int32", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8", 44: "e8m0",
}  # fmt: skip


def conversion(arguments: Arguments) -> ModelledWork | None:
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


# Operators that look at their operands in another way, or leave all work to operators inside them.


def view(_arguments: Arguments) -> ModelledWork:
    """No work of its own: what it launches, if anything, the operators inside it do."""
    return NOTHING


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "one_pass": one_pass,
    "reduction": reduction,
    "arange": arange,
    "creation": creation,
    "conversion": conversion,
    "view": view,
}


# Pooling, padding and resampling: results whose sizes follow from windows, factors or sizes that are given.


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


POOLING: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "pooling": pooling,
    "resizing": resizing,
    "edge_padded": edge_padded,
    "grid_sampling": grid_sampling,
}
