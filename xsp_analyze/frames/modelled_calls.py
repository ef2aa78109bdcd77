"""The least work of calls of operators, by the models that hold for their names."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.work_models.call import ServingLengths, Tensor, call_of
from xsp_analyze.work_models.formulas import FORMULAS
from xsp_analyze.work_models.registry import all_models

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.work_models.call import Call, ModelledWork
    from xsp_analyze.work_models.registry import Models

__all__ = [
    "DETAILS",
    "INPUTS",
    "LENGTHS",
    "WORK",
    "inner_names",
    "is_modelled",
    "is_view",
    "modelled_kinds",
    "takes_following",
    "takes_inner",
    "takes_lengths",
]

INPUTS = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
LENGTHS = ("queries", "keys", "queries_squared", "queries_keys")
DETAILS = {
    "next_shapes": pl.String(),
    "next_dtypes": pl.String(),
    "kernel_precision": pl.String(),
    "inner_operators": pl.String(),
    "inner_calls": pl.String(),
    **dict.fromkeys(LENGTHS, pl.Int64()),
}
"""What the work of some calls follows from beside their name and INPUTS; see `call_details`."""

WORK = {
    "flop": pl.Float64(),
    "vector_flop": pl.Float64(),
    "read_bytes": pl.Float64(),
    "written_bytes": pl.Float64(),
    "bus_bytes": pl.Float64(),
    "precision": pl.String(),
    "element_type": pl.String(),
    "operator_class": pl.String(),
}
"""What `modelled_kinds` adds: a `ModelledWork`, the first operand's type and the class; null: not modelled."""


_DAMAGES = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_ENDLESS = 1e30  # flop or bytes of a call


def is_modelled(name: str) -> bool:
    """Whether there is a model for operators of this name."""
    return all_models().of(name) is not None


def is_view(name: str) -> bool:
    """Whether operators of this name do nothing by themselves: what they launch, operators inside them do."""
    model = all_models().of(name)
    return model is not None and model.formula is FORMULAS["view"]


def takes_lengths(name: str) -> bool:
    """Whether what operators of this name do follows from the lengths of the requests of a serving step."""
    model = all_models().of(name)
    return model is not None and bool(model.settings.get("lengths"))


def takes_following(name: str) -> bool:
    """Whether the output of operators of this name may have to be told by what runs next: of convolutions."""
    model = all_models().of(name)
    return model is not None and model.formula is FORMULAS["convolution"]


def takes_inner(name: str) -> bool:
    """Whether what operators of this name did may have to be told by the operators inside."""
    model = all_models().of(name)
    return model is not None and model.settings.get("inside") is True


def inner_names(name: str) -> tuple[str, ...]:
    """The operators directly inside whose inputs tell what operators of this name did."""
    model = all_models().of(name)
    names = model.settings.get("inside") if model else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def modelled_kinds(kinds: pl.DataFrame, models: Models | None = None) -> pl.DataFrame:
    """The kinds of calls (name, INPUTS, DETAILS) with the columns of WORK.

    `models`: by which; None: by those of this package and of installed distributions.
    """
    by = all_models() if models is None else models
    works = [_row(row, by) for row in kinds.iter_rows(named=True)]
    return kinds.hstack(pl.DataFrame(works, schema=WORK, orient="row"))


def _row(call: Mapping[str, object], models: Models) -> tuple[object, ...]:
    name = str(call["name"])
    model = models.of(name)
    try:
        recorded = _call_of_row(name, call)
        work = model.work(recorded) if model and recorded else None
        return (*_fields(work), _element_type(recorded), str(model.operator_class) if model else None)
    except _DAMAGES:  # sizes and scalars that no operator takes: what it did is not known
        return (*_fields(None), None, str(model.operator_class) if model else None)


def _call_of_row(name: str, call: Mapping[str, object]) -> Call | None:
    return call_of(
        name,
        *(_text(call[column]) for column in INPUTS),
        following=_first_tensor(_text(call.get("next_shapes")), _text(call.get("next_dtypes"))),
        kernel_precision=_text(call.get("kernel_precision")),
        lengths=_lengths(call),
        inner=tuple((_text(call.get("inner_operators")) or "").split()),
        inner_calls=tuple(_inner_calls(_text(call.get("inner_calls")))),
    )


def _inner_calls(text: str | None) -> Iterator[Call]:
    """The calls that `inner_operators.inner_calls` wrote."""
    for line in (text or "").split("\n"):
        name, *texts = line.split("\t")
        call = call_of(name, *texts) if len(texts) == len(INPUTS) else None
        if call is not None:
            yield call


def _fields(work: ModelledWork | None) -> tuple[object, ...]:
    if work is None:
        return (None,) * (len(WORK) - 2)
    amounts = (work.flop, work.vector_flop, work.read_bytes, work.written_bytes, work.bus_bytes)
    if any(each is not None and not 0 <= each < _ENDLESS for each in amounts):
        return (None,) * (len(WORK) - 2)  # sizes that no memory has: the file is damaged
    return (*(None if each is None else float(each) for each in amounts), work.precision)


def _element_type(call: Call | None) -> str | None:
    tensors = (each for each in (call.inputs if call else ()) if isinstance(each, Tensor))
    return next((each.element_type for each in tensors), None)


def _lengths(call: Mapping[str, object]) -> ServingLengths | None:
    sums = [call.get(column) for column in LENGTHS]
    if all(each is None for each in sums):
        return None
    return ServingLengths(*(each if isinstance(each, int) else None for each in sums))


@cache
def _first_tensor(shapes: str | None, dtypes: str | None) -> Tensor | None:
    call = call_of("", shapes, dtypes, kernel_precision="fp32")  # where types are missing: only the shape is asked for
    first = call.inputs[0] if call else None
    return first if isinstance(first, Tensor) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
