"""Reads `mlperf_log_trace.json`: when each query was due and when the last of its samples was done.

LoadGen writes an event a line and quotes some texts twice, so that the file is no valid JSON; its lines are searched
for the events of samples, in bounded memory.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.content import cut_off, lines
from xsp_model import XspError
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IS_TRACE", "Queries", "read_queries"]

IS_TRACE = re.compile(
    rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"traceEvents"\s*:\s*\[\s*\{.*?'
    rb'"name"\s*:\s*"(?:GenerateLoadableSets|GenerateQueries|SampleLoop|IssueQuery|IOThreadLoop)"\s*,\s*"ph"',
    re.DOTALL,
)
_SAMPLE = re.compile(
    rb'"Sample"[^{}]*"ph"\s*:\s*"b"[^{}]*"pid"\s*:\s*(\d{1,18})[^{}]*'
    rb'"ts"\s*:\s*(-?\d{1,15}(?:\.\d{1,9})?)\s*,\s*"args"\s*:\s*\{([^{}]*)\}'
)
_QUERY = re.compile(rb'"query_seq"\s*:\s*(\d{1,18})(?!\d)')
_DONE = re.compile(rb'"complete_ns"\s*:\s*(-?\d{1,18})(?!\d)')
_ANY_SAMPLE = re.compile(rb'"Sample"[^{}]*"ph"\s*:\s*"b"')
_TIME = re.compile(rb'"ts"\s*:\s*(-?\d{1,15}(?:\.\d{1,9})?)(?![\d.])')
_END = re.compile(rb"\]\s*(?:,[^\[\]]*)?\}\s*\Z")
_EPOCH = re.compile(rb'"otherData"\s*:\s*\{[^{}]*?"ts"\s*:\s*(\d{1,18}(?:\.\d{1,9})?)(?![\d.])')
_TAIL_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries by number; times in ns of LoadGen's clock.

    `table`: query, start_ns (when it was due), duration_ns (to its last sample's completion), samples.
    `sample_latencies_ns`: sorted, one a sample. `first_event_ns`: of anything LoadGen did.
    """

    table: pl.DataFrame
    sample_latencies_ns: np.ndarray[tuple[int], np.dtype[np.int64]]
    process_id: int
    first_event_ns: int
    epoch_ns: int | None
    unreadable: int  # samples without a query, a time or a latency


def read_queries(path: Path) -> Queries:
    """The file's queries; XspError where it lacks its end or holds none."""
    columns = {name: array("q") for name in ("query", "start_ns", "latency_ns")}
    process, first, unreadable, tail = 0, None, 0, b""
    for block in lines(path):
        first = _first(block) if first is None else first
        tail = (tail + block)[-_TAIL_BYTES:]
        taken = 0
        for match in _SAMPLE.finditer(block):
            if _take(match, columns):
                process = process or int(match[1])
                taken += 1
        unreadable += len(_ANY_SAMPLE.findall(block)) - taken
    if not _END.search(tail):
        raise cut_off(path, "a LoadGen trace ends its list of events")
    if not columns["query"]:
        raise XspError("the LoadGen trace holds no query", path=path, advice="Was the test stopped before it began?")
    epoch = _EPOCH.search(tail)
    samples = pl.DataFrame({name: np.frombuffer(values, dtype=np.int64) for name, values in columns.items()})
    table = _by_query(samples)
    due = int(table["start_ns"].to_numpy().min())
    begun = due - 1 if first is None else min(first, due - 1)  # before the first query, so that it is not of it
    latencies = np.sort(samples["latency_ns"].to_numpy())
    return Queries(table, latencies, process, begun, epoch and _ns(epoch[1]), unreadable)


def _take(match: re.Match[bytes], columns: dict[str, array[int]]) -> bool:
    query, done = _QUERY.search(match[3]), _DONE.search(match[3])
    start = _ns(match[2])
    if query is None or done is None or start is None or int(done[1]) < 0:
        return False
    columns["query"].append(int(query[1]))
    columns["start_ns"].append(start)
    columns["latency_ns"].append(int(done[1]))
    return True


def _by_query(samples: pl.DataFrame) -> pl.DataFrame:
    done = pl.col("start_ns") + pl.col("latency_ns")
    return (
        samples.group_by("query")
        .agg(
            pl.col("start_ns").min(),
            (done.max() - pl.col("start_ns").min()).alias("duration_ns"),
            pl.len().cast(pl.Int64).alias("samples"),
        )
        .sort("query")
    )


def _first(block: bytes) -> int | None:
    """The earliest time in the file's first events, which come from before the first query."""
    times = [_ns(text) for text in _TIME.findall(block[: 1 << 16])]
    return min((time for time in times if time is not None), default=None)


def _ns(microseconds: bytes) -> int | None:
    """Exactly; LoadGen writes three decimals."""
    value = int(Decimal(microseconds.decode()) * 1000)
    return value if -LATEST_NS < value < LATEST_NS else None
