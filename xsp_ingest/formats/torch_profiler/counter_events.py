"""Hardware counters sampled over time: events of phase C, each with values of several counters of one device."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.counters.ncu_names import unit_of
from xsp_ingest.files.content import read_all
from xsp_ingest.files.json_values import characters, finite, json_integer, nanoseconds
from xsp_ingest.formats.torch_profiler import refusal
from xsp_ingest.formats.torch_profiler.categories import COUNTER
from xsp_ingest.formats.torch_profiler.scan_plain import integer
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["samples"]

_NS_PER_US = 1000
_HEAD = re.compile(r'\{\s*"ph"\s*:\s*"C"\s*,\s*"cat"\s*:\s*"(?:' + "|".join(COUNTER) + ')"')


class _Number(str):
    """A number as the file writes it: times are exact, and counters take what a float holds of it."""

    __slots__ = ()


def samples(expected: int, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `counters` from the file's samples, of which so many are expected, and what is unusable.

    Read from the text, as the scanners keep known arguments only. Counters of CUPTI are in base units.
    """
    if not expected:
        return frame_of("counters"), []
    rows, lost = [], 0
    for event in _events(path, expected):
        args, time_ns = event.get("args"), nanoseconds(event.get("ts"), _NS_PER_US)
        values = {characters(name): _value(value) for name, value in args.items()} if isinstance(args, dict) else {}
        usable = {name: value for name, value in values.items() if value is not None and time_ns is not None}
        lost += max(len(values), 1) - len(usable)
        device = integer(event.get("pid"))
        rows += [(time_ns, name, device, value) for name, value in usable.items()]
    schema = {"time_ns": pl.Int64, "counter": pl.String, "device_id": pl.Int64, "value": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row").join(_units(rows), on="counter", how="left")
    table = table.with_columns(pl.col("value") * pl.col("multiply") / pl.col("divide"))
    detail = "samples of hardware counters without a time or a value, left out"
    return frame_of("counters", table.select("time_ns", "counter", "device_id", "value", "unit")), (
        [Finding(LedgerKind.GPU_METRIC_UNUSABLE, detail, lost)] if lost else []
    )


def _events(path: Path, expected: int) -> Iterator[dict[str, Any]]:
    text = read_all(path, damaged=refusal.truncated).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_float=_Number, parse_int=json_integer, parse_constant=lambda _: None)
    starts = [match.start() for match in _HEAD.finditer(text)]
    if len(starts) == expected:
        for start in starts:
            yield decoder.raw_decode(text, start)[0]
        return
    document = decoder.decode(text)  # written by another program, with its keys in another order
    for event in document["traceEvents"] if isinstance(document, dict) else document:
        if isinstance(event, dict) and event.get("ph") == "C" and event.get("cat") in COUNTER:
            yield event


def _value(value: object) -> float | None:
    return None if isinstance(value, str) and not isinstance(value, _Number) else finite(value)


def _units(rows: list[tuple[int | None, str, int | None, float]]) -> pl.DataFrame:
    """Each counter's unit, and by what its values are multiplied and divided."""
    names = sorted({name for _, name, _, _ in rows})
    units = [unit_of(name) for name in names]
    shares = [unit.name == "1" and unit.multiply != unit.divide for unit in units]  # that came as percentages
    return pl.DataFrame(
        {
            "counter": pl.Series(names, dtype=pl.String),
            "unit": pl.Series(
                ["share" if share else unit.name for unit, share in zip(units, shares, strict=True)], dtype=pl.String
            ),
            "multiply": pl.Series([float(unit.multiply) for unit in units], dtype=pl.Float64),
            "divide": pl.Series([float(unit.divide) for unit in units], dtype=pl.Float64),
        }
    )
