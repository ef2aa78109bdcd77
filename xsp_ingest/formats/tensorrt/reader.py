"""Layer profiles and times of runs that TensorRT's trtexec exports, their numbers read by the digits in the file."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import integer, nanoseconds, text
from xsp_ingest.staging.cuda_names import COPY_DIRECTIONS
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["read_profile", "read_times"]

NULL = msgspec.Raw(b"null")
NS_PER_MS = 1_000_000


def value_of(raw: msgspec.Raw) -> str | None:
    """A text, or a number's digits; None for anything else."""
    content = bytes(raw).strip()
    if content[:1] == b'"':
        return str(msgspec.json.decode(content.decode(errors="replace")))
    return content.decode() if content[:1].isdigit() or content[:1] == b"-" else None


# `--exportProfile`: the layers of an engine with their average times, as one mean inference.

_SOURCE = "TensorRT"
_TYPES: Sequence[tuple[re.Pattern[str], str]] = (  # what TensorRT's own names say
    (re.compile(r"(?i)\breformatt(?:er|ing)\b"), "Reformat"),
    (re.compile(r"\bPWN\("), "PointWise"),
    *(
        (re.compile(f"(?i){pattern}"), kind)  # a fused layer is what leads in it: the first of these
        for pattern, kind in (
            ("conv", "Convolution"), ("gemm|matmul", "MatrixMultiply"),
            (r"fully_?connected|(?:^|[/_. ])fc(?:\b|_)", "FullyConnected"),
            ("attention|mha", "Attention"), ("softmax", "Softmax"), ("pool", "Pooling"), ("resize|upsampl", "Resize"),
            ("(?:batch|layer|instance|group)_?norm", "Normalization"), ("concat", "Concatenation"),
        )
    ),
)  # fmt: skip


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


# `--exportTimes`: when each inference was copied in, computed and copied out.


class _Times(msgspec.Struct):
    """One inference; up to TensorRT 7 the copies are called `In` and `Out`, later `H2d` and `D2h`."""

    startEnqMs: msgspec.Raw = NULL  # noqa: N815 (trtexec's keys)
    endEnqMs: msgspec.Raw = NULL  # noqa: N815
    startH2dMs: msgspec.Raw = NULL  # noqa: N815
    endH2dMs: msgspec.Raw = NULL  # noqa: N815
    startInMs: msgspec.Raw = NULL  # noqa: N815
    endInMs: msgspec.Raw = NULL  # noqa: N815
    startComputeMs: msgspec.Raw = NULL  # noqa: N815
    endComputeMs: msgspec.Raw = NULL  # noqa: N815
    startD2hMs: msgspec.Raw = NULL  # noqa: N815
    endD2hMs: msgspec.Raw = NULL  # noqa: N815
    startOutMs: msgspec.Raw = NULL  # noqa: N815
    endOutMs: msgspec.Raw = NULL  # noqa: N815


_ENQUEUE = "enqueue"
_PARTS: Sequence[tuple[str, tuple[str, ...]]] = (
    (_ENQUEUE, ("Enq",)),
    ("host-to-device copy", ("H2d", "In")),
    ("compute", ("Compute",)),
    ("device-to-host copy", ("D2h", "Out")),
)
_ON_GPU = {  # kind, direction, and stream: trtexec has one for each
    "host-to-device copy": (str(Kind.MEMCPY), COPY_DIRECTIONS["HtoD"], 0),
    "compute": (str(Kind.KERNEL), None, 1),
    "device-to-host copy": (str(Kind.MEMCPY), COPY_DIRECTIONS["DtoH"], 2),
}


@dataclass(frozen=True, slots=True)
class _Inference:
    """The parts that have times, as (name, start, end), and the whole of those on the GPU."""

    parts: Sequence[tuple[str, int, int]]
    start_ns: int
    end_ns: int


def read_times(path: Path) -> RawTrace:
    """A step an inference, from the start of its first copy to the end of its last; XspError where none has times.

    Inferences overlap, as the next one's input is copied while one computes: each takes the first even thread number
    that is free; the host's call that enqueued it stands on the odd number behind.
    """
    seen = Entries()
    inferences: list[_Inference] = []
    counts = {"missing": 0, "negative": 0, "absurd": 0}
    for batch in entries(path, _Times, seen):
        inferences += [inference for entry in batch if (inference := _inference(entry, counts)) is not None]
    if not inferences:
        raise XspError("no inference of the file has times", path=path, advice="Export the times again")
    findings = (
        Finding(LedgerKind.MISSING_START, "inferences without times on the GPU were left out", counts["missing"]),
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            "parts of inferences that end before they start were left out",
            counts["negative"],
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            "inferences that are longer than a day were left out",
            counts["absurd"],
            severity=Severity.WARNING,
        ),
        Finding(LedgerKind.NOT_AN_EVENT, "entries that are no inferences", seen.foreign, Severity.INFO),
    )
    facts = RunFacts(profiler="TensorRT trtexec --exportTimes", framework="tensorrt")
    spans = _spans(sorted(inferences, key=lambda inference: (inference.start_ns, inference.end_ns)))
    tables = {name: frame_of(name) for name in RAW_TABLES} | {
        "spans": spans,
        "kernels": frame_of("kernels", spans.filter(pl.col("kind") == str(Kind.KERNEL)).select("row")),
        "copies": _copies(spans),
    }
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _inference(entry: _Times, counts: dict[str, int]) -> _Inference | None:
    parts = []
    for name, keys in _PARTS:
        start, end = (_first(entry, [f"{side}{key}Ms" for key in keys]) for side in ("start", "end"))
        if start is None or end is None:
            continue
        if end < start:
            counts["negative"] += 1
        else:
            parts.append((name, start, end))
    gpu = [(start, end) for name, start, end in parts if name in _ON_GPU]
    if not gpu:
        counts["missing"] += 1
        return None
    first, last = min(start for start, _ in gpu), max(end for _, end in gpu)
    if max(end for _, _, end in parts) - min(start for _, start, _ in parts) > MAX_DURATION_NS:
        counts["absurd"] += 1
        return None
    return _Inference(parts, first, last)


def _first(entry: _Times, keys: Sequence[str]) -> int | None:
    times = (nanoseconds(value_of(getattr(entry, key)), NS_PER_MS) for key in keys)
    return next((time for time in times if time is not None), None)


def _spans(inferences: Sequence[_Inference]) -> pl.DataFrame:
    rows: list[tuple[str, str, str, int, int, int | None, int | None, int | None, int | None]] = []
    for inference, lane in zip(inferences, _lanes(inferences), strict=True):
        times = inference.start_ns, inference.end_ns
        step = len(rows)
        rows.append((str(Level.MODEL), str(Kind.STEP), "inference", *times, 2 * lane, None, None, None))
        for name, start, end in inference.parts:
            if name == _ENQUEUE:
                rows.append((str(Level.LIBRARY), str(Kind.CALL), name, start, end, 2 * lane + 1, None, None, None))
            else:
                kind, _, stream = _ON_GPU[name]
                rows.append((str(Level.KERNEL), kind, name, start, end, None, 0, stream, step))
    columns = ("level", "kind", "name", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "issued_by_row")
    schema = [(name, pl.String() if name in {"level", "kind", "name"} else pl.Int64()) for name in columns]
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("row")
    return frame_of(
        "spans",
        frame.with_columns(
            pl.col("row").cast(pl.Int64),
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.lit(0, pl.Int64).alias("process_id"),
        ),
    )


def _copies(spans: pl.DataFrame) -> pl.DataFrame:
    directions = {name: direction for name, (_, direction, _) in _ON_GPU.items() if direction is not None}
    copies = spans.filter(pl.col("kind") == str(Kind.MEMCPY))
    direction = pl.col("name").cast(pl.String).replace_strict(directions, return_dtype=pl.String)
    return frame_of("copies", copies.select("row", direction.alias("copy_kind")))


def _lanes(inferences: Sequence[_Inference]) -> list[int]:
    """For each inference, in order of start, the first number that no inference still running has."""
    busy: list[tuple[int, int]] = []  # until when a number is taken
    free: list[int] = []
    lanes = []
    for inference in inferences:
        while busy and busy[0][0] <= inference.start_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (inference.end_ns, lane))
        lanes.append(lane)
    return lanes
