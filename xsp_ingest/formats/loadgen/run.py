"""Makes one model-level run of what LoadGen's logs say: which test it was, its latencies, and whether it was valid."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.content import cut_off, lines
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["LoggedTest", "Queries", "combine", "counts", "percentiles", "read_queries", "run_of", "sentences"]


@dataclass(frozen=True, slots=True)
class LoggedTest:
    """What one log says; None and empty: it does not say.

    `figures` are keyed by metric: `latency_min_ns`, `latency_p99_90_ns`, `completed_sample_per_s`, ...
    `rules` says of each rule whether it was kept; a rule that was not judged is not in it.
    """

    version: str | None = None
    scenario: str | None = None
    mode: str | None = None
    valid: bool | None = None
    rules: Mapping[str, bool] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    samples_per_query: int | None = None
    reason: str = ""
    warnings: int = 0
    errors: int = 0
    epoch_ns: int | None = None  # Unix time when the first query was due


def combine(first: LoggedTest, second: LoggedTest) -> LoggedTest:
    """What both logs say together; where they differ the first one counts."""
    return LoggedTest(
        version=first.version or second.version,
        scenario=first.scenario or second.scenario,
        mode=first.mode or second.mode,
        valid=second.valid if first.valid is None else first.valid,
        rules={**second.rules, **first.rules},
        figures={**second.figures, **first.figures},
        samples_per_query=first.samples_per_query or second.samples_per_query,
        reason=first.reason or second.reason,
        warnings=max(first.warnings, second.warnings),
        errors=max(first.errors, second.errors),
        epoch_ns=second.epoch_ns if first.epoch_ns is None else first.epoch_ns,
    )


def sentences(text: str) -> str:
    """LoadGen's list of remarks as running text."""
    return " ".join(text.replace("*", " ").split())


# Reads `mlperf_log_trace.json`: when each query was due and when the last of its samples was done.
#
# LoadGen writes an event a line and quotes some texts twice, so that the file is no valid JSON; its lines are searched
# for the events of samples, in bounded memory.

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


# What the ledger says of a LoadGen run: whether the test was valid, and which rules it broke.

_QUEUED = ("Server", "Offline")


def _findings(outcome: LoggedTest, queries: Queries | None, worked_out: Mapping[str, float]) -> Iterator[Finding]:
    """The entries; those that count nothing are left out of the ledger."""
    yield from _validity(outcome)
    yield Finding(LedgerKind.LOADGEN_ERROR, count=outcome.errors)
    yield Finding(LedgerKind.LOADGEN_WARNING, count=outcome.warnings)
    yield Finding(LedgerKind.LOADGEN_ACCURACY_RUN, count=int(outcome.mode == "AccuracyOnly"))
    yield Finding(LedgerKind.LOADGEN_QUEUED, count=int(outcome.scenario in _QUEUED))
    yield Finding(LedgerKind.NO_QUERY_LATENCIES, count=int(queries is None))
    if queries is not None:
        yield Finding(LedgerKind.UNREADABLE_SAMPLE, count=queries.unreadable)
    differ = sorted(name for name, value in worked_out.items() if outcome.figures.get(name, value) != value)
    yield Finding(
        LedgerKind.LOADGEN_PERCENTILE_DIFFERS,
        f"latencies worked out from the trace differ from those stated: {', '.join(differ)}",
        len(differ),
    )


def _validity(outcome: LoggedTest) -> Iterator[Finding]:
    violated = sorted(rule for rule, kept in outcome.rules.items() if not kept)
    advice = outcome.reason.strip() or "LoadGen's own summary says what to change"
    if outcome.valid is False or violated:
        for rule in violated or ["not said which"]:
            detail = f"by LoadGen's rules the test is invalid: {rule}"
            if outcome.valid:
                detail = f"the test is valid, though one of LoadGen's rules was not kept: {rule}"
            yield Finding(
                LedgerKind.LOADGEN_INVALID,
                detail,
                1,
                Severity.WARNING if outcome.valid else Severity.ERROR,
                None,
                advice,
            )


# The run.

_SHARES = {"50_00": 0.50, "90_00": 0.90, "95_00": 0.95, "97_00": 0.97, "99_00": 0.99, "99_90": 0.999}
_QUERY_NAME = "query"
_MEASURED, _WORKED_OUT = "measured by LoadGen", "derived from the trace"


def run_of(outcome: LoggedTest, queries: Queries | None) -> RawTrace:
    """The run: a span for the test, one a query (a step) where there is a trace; figures as metrics of the test."""
    worked_out = {} if queries is None else percentiles(queries, outcome) | counts(queries, outcome)
    tables = {name: frame_of(name) for name in RAW_TABLES}
    tables["spans"] = _spans(outcome, queries)
    tables["metrics"] = _metrics(outcome, worked_out)
    epoch = outcome.epoch_ns if queries is None or queries.epoch_ns is None else queries.epoch_ns
    version = (outcome.version or "").partition(" @")[0]
    facts = RunFacts(profiler=f"MLPerf LoadGen {version}".strip(), batch_size=_batch_size(outcome), epoch_ns=epoch)
    return RawTrace(tables, facts, tuple(_findings(outcome, queries, worked_out)))


def percentiles(queries: Queries, outcome: LoggedTest) -> dict[str, float]:
    """Latencies by LoadGen's rule (results.cc): the one at index count * share, rounded down, of the sorted ones.

    Of queries in the scenario MultiStream, of samples in all others.
    """
    values = _latencies_ns(queries, outcome)
    count = len(values)
    by_share = {f"latency_p{name}_ns": float(values[int(count * share)]) for name, share in _SHARES.items()}
    return {
        "latency_min_ns": float(values[0]),
        "latency_max_ns": float(values[-1]),
        "latency_mean_ns": float(sum(values.tolist()) // count),  # integer ns, as LoadGen's
        **by_share,
    }


def counts(queries: Queries, outcome: LoggedTest) -> dict[str, float]:
    """How many queries there were, and how many latencies were over the target, where there was one."""
    target = outcome.figures.get("target_latency_ns")
    over = (
        {} if target is None else {"overlatency_query_count": float((_latencies_ns(queries, outcome) > target).sum())}
    )
    return {"query_count": float(queries.table.height), **over}


def _latencies_ns(queries: Queries, outcome: LoggedTest) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Sorted, of what the scenario's latencies are of."""
    of_queries = outcome.scenario == "MultiStream"
    return queries.table["duration_ns"].sort().to_numpy() if of_queries else queries.sample_latencies_ns


def _batch_size(outcome: LoggedTest) -> int | None:
    """Only where a query is the model's batch: what a server or offline system batches is its own affair."""
    return outcome.samples_per_query if outcome.scenario in {"SingleStream", "MultiStream"} else None


def _spans(outcome: LoggedTest, queries: Queries | None) -> pl.DataFrame:
    """The test first; its duration is null without a trace, since no log tells it to the nanosecond."""
    name = " ".join(part for part in ("LoadGen", outcome.scenario, outcome.mode) if part)
    test = {"row": [0], "level": [str(Level.APPLICATION)], "kind": [str(Kind.RANGE)], "name": [name]}
    if queries is None:
        return frame_of("spans", {**test, "start_ns": [0], "process_id": [0], "thread_id": [0]})
    table = queries.table
    end = max((table["start_ns"] + table["duration_ns"]).to_list())
    lane = {"process_id": [queries.process_id], "thread_id": [0]}
    extent = {"start_ns": [queries.first_event_ns], "duration_ns": [end - queries.first_event_ns]}
    steps = table.select(
        (pl.col("query").rank("ordinal").cast(pl.Int64)).alias("row"),
        pl.lit(str(Level.MODEL)).alias("level"),
        pl.lit(str(Kind.STEP)).alias("kind"),
        pl.lit(_QUERY_NAME).alias("name"),
        "start_ns",
        "duration_ns",
        pl.lit(queries.process_id, pl.Int64).alias("process_id"),
    ).with_columns(pl.Series("thread_id", _lanes(table.select("start_ns", "duration_ns").iter_rows())))
    return pl.concat([frame_of("spans", {**test, **lane, **extent}), frame_of("spans", steps)])


def _lanes(intervals: Iterable[tuple[int, int]]) -> list[int]:
    """A lane from 1 for each query, in which no other one runs meanwhile: queries side by side hold none of another."""
    ordered = list(intervals)
    lanes = [0] * len(ordered)
    busy: list[tuple[int, int]] = []  # end and lane
    for index in sorted(range(len(ordered)), key=lambda n: ordered[n]):
        start, duration = ordered[index]
        lane = heappop(busy)[1] if busy and busy[0][0] < start else len(busy) + 1
        heappush(busy, (start + duration, lane))
        lanes[index] = lane
    return lanes


def _metrics(outcome: LoggedTest, worked_out: Mapping[str, float]) -> pl.DataFrame:
    """What LoadGen states, and what it does not state or states otherwise than its trace."""
    measured = dict(outcome.figures)
    if outcome.valid is not None:
        measured["valid"] = float(outcome.valid)
    measured |= {f"{rule.replace(' ', '_')}_satisfied": float(kept) for rule, kept in outcome.rules.items()}
    other = {name: value for name, value in worked_out.items() if measured.get(name) != value}
    rows = [(name, value, _MEASURED) for name, value in measured.items()]
    rows += [(name, value, _WORKED_OUT) for name, value in other.items()]
    rows.sort()
    columns = {
        "row": [0] * len(rows),
        "metric": [name for name, _, _ in rows],
        "value": [value for _, value, _ in rows],
        "unit": [_unit(name) for name, _, _ in rows],
        "source": [source for _, _, source in rows],
    }
    return frame_of("metrics", columns) if rows else frame_of("metrics")


def _unit(metric: str) -> str:
    if metric.endswith("_ns"):
        return "ns"
    for what in ("sample", "query", "token"):
        if f"{what}_per_s" in metric:
            return f"{what}/s"
    return "1"
