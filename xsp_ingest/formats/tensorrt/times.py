"""`--exportTimes`: when each inference was copied in, computed and copied out."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import nanoseconds
from xsp_ingest.formats.tensorrt.digits import NS_PER_MS, NULL, value_of
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["read_times"]


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
_ON_GPU = ("host-to-device copy", "compute", "device-to-host copy")


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
    tables = {name: frame_of(name) for name in RAW_TABLES} | {"spans": spans}
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
    rows: list[tuple[str, str, str, int, int, int]] = []
    for inference, lane in zip(inferences, _lanes(inferences), strict=True):
        rows.append((str(Level.MODEL), str(Kind.STEP), "inference", inference.start_ns, inference.end_ns, 2 * lane))
        rows += [
            (str(Level.LIBRARY), str(Kind.CALL), name, start, end, 2 * lane + (name == _ENQUEUE))
            for name, start, end in inference.parts
        ]
    columns = ("level", "kind", "name", "start_ns", "end_ns", "thread_id")
    frame = pl.DataFrame(rows, schema=columns, orient="row").with_row_index("row")
    return frame_of(
        "spans",
        frame.with_columns(
            pl.col("row").cast(pl.Int64),
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.lit(0, pl.Int64).alias("process_id"),
        ),
    )


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
