"""Chooses the calls of an operator, and writes the script that runs it with what they had in common."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.export.benchmark.inputs import inputs_of, shapes_of
from xsp_analyze.export.rows import text
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import without_captures
from xsp_model import Level, XspError
from xsp_model.closest import closest
from xsp_model.plain_text import clean
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["benchmark_of"]

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
    template = Path(__file__).with_name("script.py").read_text(encoding="utf-8")
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
