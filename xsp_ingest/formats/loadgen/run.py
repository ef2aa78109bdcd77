"""Makes one model-level run of what LoadGen's logs say."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.loadgen.findings import findings
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

    from xsp_ingest.formats.loadgen.outcome import Outcome
    from xsp_ingest.formats.loadgen.queries import Queries

__all__ = ["counts", "percentiles", "run_of"]

_SHARES = {"50_00": 0.50, "90_00": 0.90, "95_00": 0.95, "97_00": 0.97, "99_00": 0.99, "99_90": 0.999}
_QUERY_NAME = "query"
_MEASURED, _WORKED_OUT = "measured by LoadGen", "derived from the trace"


def run_of(outcome: Outcome, queries: Queries | None) -> RawTrace:
    """The run: a span for the test, one a query (a step) where there is a trace; figures as metrics of the test."""
    worked_out = {} if queries is None else percentiles(queries, outcome) | counts(queries, outcome)
    tables = {name: frame_of(name) for name in RAW_TABLES}
    tables["spans"] = _spans(outcome, queries)
    tables["metrics"] = _metrics(outcome, worked_out)
    epoch = outcome.epoch_ns if queries is None or queries.epoch_ns is None else queries.epoch_ns
    version = (outcome.version or "").partition(" @")[0]
    facts = RunFacts(profiler=f"MLPerf LoadGen {version}".strip(), batch_size=_batch_size(outcome), epoch_ns=epoch)
    return RawTrace(tables, facts, tuple(findings(outcome, queries, worked_out)))


def percentiles(queries: Queries, outcome: Outcome) -> dict[str, float]:
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


def counts(queries: Queries, outcome: Outcome) -> dict[str, float]:
    """How many queries there were, and how many latencies were over the target, where there was one."""
    target = outcome.figures.get("target_latency_ns")
    over = (
        {} if target is None else {"overlatency_query_count": float((_latencies_ns(queries, outcome) > target).sum())}
    )
    return {"query_count": float(queries.table.height), **over}


def _latencies_ns(queries: Queries, outcome: Outcome) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Sorted, of what the scenario's latencies are of."""
    of_queries = outcome.scenario == "MultiStream"
    return queries.table["duration_ns"].sort().to_numpy() if of_queries else queries.sample_latencies_ns


def _batch_size(outcome: Outcome) -> int | None:
    """Only where a query is the model's batch: what a server or offline system batches is its own affair."""
    return outcome.samples_per_query if outcome.scenario in {"SingleStream", "MultiStream"} else None


def _spans(outcome: Outcome, queries: Queries | None) -> pl.DataFrame:
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


def _metrics(outcome: Outcome, worked_out: Mapping[str, float]) -> pl.DataFrame:
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
