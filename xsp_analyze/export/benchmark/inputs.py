"""What a call was given, from the texts that PyTorch's profiler recorded: tensors with types, and plain values."""

from __future__ import annotations

import json
import math
from ast import literal_eval
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.export.rows import Row

__all__ = ["Input", "inputs_of", "shapes_of"]

Input = tuple[Any, ...]
"""`("tensor", dtype, shape, strides)`, `("value", value)`, or `("float", text)` of one that has no literal."""

_DTYPES: Mapping[str, str] = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
_NO_LITERAL = ("inf", "-inf", "nan", "-nan")
_MAX_TEXT = 100_000
_LONGEST = 1 << 62


def shapes_of(written: str) -> object | None:
    """The JSON of a column or of what a user writes; None where it is none."""
    try:
        return json.loads(written) if len(written) <= _MAX_TEXT else None
    except (ValueError, RecursionError):
        return None


def inputs_of(call: Row) -> tuple[list[Input], bool]:
    """The inputs of the call, and whether their strides were recorded; XspError where one cannot be made again."""
    shapes = _list(call["input_shapes"])
    types, values, strides = (_list(call[f"{key}"]) for key in ("input_dtypes", "concrete_inputs", "input_strides"))
    if shapes is None or types is None or len(types) != len(shapes):
        raise _unknown("the types of its inputs were not recorded with their shapes")
    made = [
        _input(at, shape, str(kind), _at(values, at), _at(strides, at))
        for at, (shape, kind) in enumerate(zip(shapes, types, strict=True))
    ]
    while made and made[-1] == ("value", None):
        made.pop()  # what was left out
    return made, strides is not None


def _list(written: str | None) -> list[Any] | None:
    content = None if written is None else shapes_of(written)
    return content if isinstance(content, list) else None


def _at(values: Sequence[Any] | None, at: int) -> Any:  # noqa: ANN401 (JSON)
    return values[at] if values is not None and at < len(values) else None


def _input(at: int, shape: object, kind: str, value: object, strides: object) -> Input:
    if kind in _DTYPES:
        if not _are_sizes(shape):
            raise _unknown(f"the shape of input {at + 1} cannot be read")
        return ("tensor", _DTYPES[kind], shape, strides if _fit(strides, shape) else _contiguous(shape))
    if kind == "" and value in {None, ""}:
        return ("value", None)
    if value in _NO_LITERAL:
        return ("float", value)
    try:
        literal = literal_eval(str(value)) if value not in {None, ""} else ...
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        literal = ...
    if not _is_plain(literal):
        raise _unknown(f"the value of input {at + 1} ({_kind_in_quotes(kind)}) was not recorded")
    return ("value", literal)


def _are_sizes(shape: object) -> bool:
    return isinstance(shape, list) and all(type(size) is int and 0 <= size < _LONGEST for size in shape)


def _fit(strides: object, shape: Any) -> bool:  # noqa: ANN401 (sizes)
    return _are_sizes(strides) and len(strides) == len(shape)  # type: ignore[arg-type]


def _contiguous(shape: Any) -> list[int]:  # noqa: ANN401 (sizes)
    return list(accumulate(shape[:0:-1], lambda stride, size: stride * max(size, 1), initial=1))[::-1] if shape else []


def _is_plain(literal: object) -> bool:
    if isinstance(literal, list | tuple):
        return all(_is_number(one) for one in literal)
    return _is_number(literal)


def _is_number(literal: object) -> bool:
    return type(literal) in {int, bool} or (isinstance(literal, float) and math.isfinite(literal))


def _kind_in_quotes(kind: str) -> str:
    return json.dumps(kind[:40]) if kind else "without a type"


def _unknown(why: str) -> XspError:
    return XspError(
        f"the operator cannot be run alone: {why}",
        advice="Choose another with --operator or --shape; record with `record_shapes=True`, of a recent torch",
    )
