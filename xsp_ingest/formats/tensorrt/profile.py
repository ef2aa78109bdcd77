"""`--exportProfile`: the layers of an engine with their average times, as one mean inference."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import integer, nanoseconds, text
from xsp_ingest.formats.tensorrt.digits import NS_PER_MS, NULL, value_of
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["read_profile"]

_SOURCE = "TensorRT"
_TYPES: Sequence[tuple[re.Pattern[str], str]] = (  # what TensorRT's own names say
    (re.compile(r"(?i)\breformatt(?:er|ing)\b"), "Reformat"),
    (re.compile(r"\bPWN\("), "PointWise"),
)


class _Layer(msgspec.Struct):
    """An entry; the digits of times are kept as they stand, to be read exactly."""

    count: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    timeMs: msgspec.Raw = NULL  # noqa: N815 (trtexec's key)
    averageMs: msgspec.Raw = NULL  # noqa: N815
    medianMs: msgspec.Raw = NULL  # noqa: N815


def read_profile(path: Path) -> RawTrace:
    """One step whose layers stand end to end, each as long as its average; XspError where no layer has one.

    A layer's time is the GPU's, taken between events on the stream.
    """
    seen = Entries()
    listed = [entry for batch in entries(path, _Layer, seen) for entry in batch]
    count = next((number for entry in listed if (number := integer(value_of(entry.count))) is not None), None)
    layers = [entry for entry in listed if text(value_of(entry.name)) is not None]
    averages = [_average(layer, count) for layer in layers]
    averaged = [(layer, ns) for layer, ns in zip(layers, averages, strict=True) if ns is not None]
    if not averaged:
        raise XspError("no layer of the profile has an average time", path=path, advice="Export the profile again")
    strangers = sum(1 for e in listed if text(value_of(e.name)) is None and value_of(e.count) is None)
    negative = sum(1 for _, ns in averaged if ns < 0)
    findings = (
        Finding(LedgerKind.AVERAGED_TIMES, count=len(averaged)),
        Finding(LedgerKind.MISSING_DURATION, count=len(layers) - len(averaged)),
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            "layers with a negative time were taken as 0 ns long",
            negative,
            Severity.ERROR,
        ),
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no layers", seen.foreign + strangers),
    )
    tables = _tables([(layer, max(ns, 0)) for layer, ns in averaged], count)
    facts = RunFacts(profiler="TensorRT trtexec --exportProfile", framework="tensorrt")
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _average(layer: _Layer, count: int | None) -> int | None:
    """The average as trtexec printed it; else the total over the count; None where neither is plausible."""
    average = nanoseconds(value_of(layer.averageMs), NS_PER_MS)
    total = nanoseconds(value_of(layer.timeMs), NS_PER_MS)
    if average is None and total is not None and count:
        average = round(total / count)
    return average if average is not None and average <= MAX_DURATION_NS else None


def _tables(layers: Sequence[tuple[_Layer, int]], count: int | None) -> Mapping[str, pl.DataFrame]:
    names = [str(value_of(layer.name)) for layer, _ in layers]
    durations = [ns for _, ns in layers]
    rows = list(range(1, len(layers) + 1))
    last = max(sum(durations) - 1, 0)
    spans = {
        "row": [0, *rows],
        "level": [str(Level.MODEL)] + [str(Level.LAYER)] * len(layers),
        "kind": [str(Kind.STEP)] + [str(Kind.MODULE)] * len(layers),
        "name": ["mean inference", *names],
        "start_ns": [0, *(min(start, last) for start in accumulate(durations[:-1], initial=0))],
        "duration_ns": [sum(durations), *durations],
        "process_id": [0] * (len(layers) + 1),  # the file names neither process nor thread
        # A layer of 0 ns stands on no thread: there it would be taken for a part of the one that starts with it.
        "thread_id": [0, *(0 if ns else None for ns in durations)],
    }
    facts = {"row": rows, "sequence_index": rows, "layer_type": [_type(name) for name in names]}
    tables = {
        "spans": frame_of("spans", spans),
        "layers": frame_of("layers", facts),
        "metrics": _metrics(layers, count),
    }
    return tables | {name: frame_of(name) for name in RAW_TABLES if name not in tables}


def _type(name: str) -> str | None:
    """The type that the name says; None where it is that of the layers that were fused, as in the model."""
    return next((kind for pattern, kind in _TYPES if pattern.search(name)), None)


def _metrics(layers: Sequence[tuple[_Layer, int]], count: int | None) -> pl.DataFrame:
    """Over how many inferences the averages are, and each layer's median."""
    rows: list[tuple[int, str, float, str]] = [] if count is None else [(0, "invocations", float(count), "1")]
    for row, (layer, _) in enumerate(layers, start=1):
        median = nanoseconds(value_of(layer.medianMs), NS_PER_MS)
        if median is not None:
            rows.append((row, "median_duration_ns", float(median), "ns"))
    schema = {"row": pl.Int64, "metric": pl.String, "value": pl.Float64, "unit": pl.String}
    medians = pl.DataFrame(rows, schema=schema, orient="row")
    return frame_of("metrics", medians.with_columns(pl.lit(_SOURCE).alias("source")))
