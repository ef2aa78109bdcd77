"""Reductions, and results that numbers alone size."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS
from xsp_analyze.work_models.formulas.elementwise import one_pass
from xsp_analyze.work_models.results import SCALAR_TYPES, number
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]


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


def created(arguments: Arguments) -> ModelledWork | None:
    """As many elements as numbers among the inputs say, written.

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

FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "reduction": reduction,
    "arange": arange,
    "created": created,
}
