"""Writes a script that runs one recorded operator of torch alone, on inputs that its calls had in common."""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.export.part import text
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import without_captures
from xsp_model import Level, XspError
from xsp_model.columns.tree import innermost
from xsp_model.errors import clean, closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.export.part import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["Input", "benchmark_of", "inputs_of", "shapes_of"]

# What a call was given, from the texts that PyTorch's profiler recorded: tensors with types, and plain values.

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


_NAME = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)(?:\.\w+)?", re.ASCII)
_MARK = "RECORDED: dict[str, Any] = {}\n"
_ALIKE = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_NS_PER_US = 1000


def benchmark_of(operator: str, shape: str | None) -> Exporter:
    """The format of one operator; of several sets of shapes the one that took most time, where none is chosen."""
    return Exporter("benchmark", "a script that runs an operator of torch alone", partial(_write, operator, shape))


def _write(operator: str, shape: str | None, trace: Trace, file: Sink) -> None:
    match = _NAME.fullmatch(operator)
    if match is None:
        raise XspError(
            f"{operator!r} is no name of an operator of torch",
            advice="Give one such as aten::mm, as `xsp analyze -a B23` has",
        )
    calls = _alike(_calls(trace, operator), operator, shape)
    inputs, has_strides = inputs_of(calls.row(0, named=True))
    on_device = calls["device_ns"].is_not_null().any()
    nanoseconds = calls["device_ns" if on_device else "duration_ns"].drop_nulls()
    recorded = {
        "namespace": match[1],
        "operator": match[2],
        "shapes": json.dumps(shapes_of(calls["input_shapes"][0])),
        "inputs": inputs,
        "microseconds": float(np.median(nanoseconds.to_numpy())) / _NS_PER_US,
        "calls": len(nanoseconds),
        "what": f"device time in sum, {_devices(trace, calls)}"
        if on_device
        else "host time, no device work was recorded",
        "notes": [] if has_strides else ["strides were not recorded: inputs are taken to be contiguous"],
    }
    file.write(_script(recorded).encode())


def _script(recorded: Mapping[str, object]) -> str:
    """The script with these values in place of its own: as literals of plain ASCII, whatever the trace's texts hold."""
    template = Path(__file__).with_name("benchmark_script.py").read_text(encoding="utf-8")
    lines = "".join(f"    {key!a}: {value!a},\n" for key, value in recorded.items())
    before, _, after = template.partition(_MARK)
    return f"{before}RECORDED: dict[str, Any] = {{\n{lines}}}\n{after}"


def _calls(trace: Trace, operator: str) -> pl.DataFrame:
    """The calls of the operator, with the time of the device work that was launched in each."""
    spans = (
        trace.scan("spans")
        .select("span_id", "parent_id", "run_id", "duration_ns", "device_id", pl.col("level", "name").cast(pl.String))
        .collect()
    )
    mask = (spans["name"] == operator) & (spans["level"] == Level.OPERATOR)
    if not mask.any():
        names = spans.filter(spans["level"] == Level.OPERATOR)["name"].unique().sort().to_list()
        near = closest(operator, names)
        advice = f"Did you mean {' or '.join(near)}?" if near else "`xsp analyze -a B23` lists the operators by shape"
        raise XspError(f"the trace has no operator {operator!r}", advice=advice)
    owner = innermost(spans["parent_id"].fill_null(-1).to_numpy(), mask.to_numpy())
    work = spans.with_columns(pl.Series("owner", owner)).filter(pl.col("level") == Level.KERNEL, pl.col("owner") >= 0)
    sums = work.group_by(pl.col("owner").alias("span_id")).agg(
        pl.col("duration_ns").sum().alias("device_ns"), pl.col("device_id").first().alias("on_device_id")
    )
    calls = without_captures(trace, spans.filter(mask).lazy()).join(
        sums.lazy(), on="span_id", how="left", maintain_order="left"
    )
    facts = text(trace.scan("operators")).select("span_id", *_ALIKE)
    return calls.join(facts, on="span_id", how="left", maintain_order="left").collect()


def _alike(calls: pl.DataFrame, operator: str, shape: str | None) -> pl.DataFrame:
    """Of the calls with shapes (those that are chosen) the ones on equal inputs that took most time."""
    called = calls.filter(pl.col("input_shapes").is_not_null())
    if called.is_empty():
        raise XspError(
            f"the shapes of {operator!r} were not recorded, so it cannot be run alone",
            advice="Record with `record_shapes=True`",
        )
    if shape is not None:
        called = _of_shape(called, operator, shape)
    time = pl.coalesce(pl.col("device_ns").sum(), pl.lit(0)).alias("device"), pl.col("duration_ns").sum().alias("host")
    groups = called.group_by(_ALIKE, maintain_order=True).agg(*time)
    first = groups.sort("device", "host", descending=True, nulls_last=True, maintain_order=True).head(1)
    return called.join(first.select(_ALIKE), on=_ALIKE, how="semi", nulls_equal=True, maintain_order="left")


def _of_shape(calls: pl.DataFrame, operator: str, shape: str) -> pl.DataFrame:
    chosen = shapes_of(shape)
    written = [text for text in calls["input_shapes"].unique(maintain_order=True) if shapes_of(text) == chosen]
    if chosen is None or not written:
        there = calls["input_shapes"].unique(maintain_order=True).head(3).to_list()
        raise XspError(
            f"{operator!r} was not called on {shape!r}", advice=f"Shapes are JSON, such as {' or '.join(there)}"
        )
    return calls.filter(pl.col("input_shapes").is_in(written))


def _devices(trace: Trace, calls: pl.DataFrame) -> str:
    numbers = calls["on_device_id"].drop_nulls().unique().to_list()
    names = trace.frame("devices").filter(pl.col("device_id").is_in(numbers))["name"].drop_nulls().unique().sort()
    return clean(", ".join(names)) or "of a device that is not named"
