"""What MLPerf LoadGen said of its tests: scenario, validity, rates, latencies, and the latency that it was held to."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (a dataclass's own field)
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import LedgerKind

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["LoadTest", "load_test", "load_tests", "tests_in"]

_FORMAT = "loadgen"
_RULE, _PERCENTILE = "_satisfied", "latency_p"
_CONSTRAINTS = "performance constraints"
_QUEUED = ("Server", "Offline")


@dataclass(frozen=True, slots=True)
class LoadTest:
    """One test; `valid` null: LoadGen did not judge. Latencies in ns, percentiles by name (`p99_00`), rates per second.

    `target_share` of queries were to take at most `target_latency_ns`; of `query_count` queries `over_target_count`
    took longer. Null: the test had no target, or the logs do not say.
    """

    run_id: int
    test: str
    valid: bool | None
    broken_rules: list[str]
    reason: str
    mean_latency_ns: float | None
    percentiles_ns: Mapping[str, float]
    samples_per_s: float | None
    target_latency_ns: float | None
    target_share: float | None
    query_count: int | None
    over_target_count: int | None

    @property
    def has_queueing(self) -> bool:
        """Whether its latencies hold the time that queries waited for others; those of a stream do not."""
        return any(scenario in self.test for scenario in _QUEUED)

    @property
    def target_name(self) -> str | None:
        """The percentile that was held to the target, as `percentiles_ns` names it."""
        return None if self.target_share is None else f"p{100 * self.target_share:05.2f}".replace(".", "_")

    @property
    def over_target_share(self) -> float | None:
        """Of all queries, the part that took longer than the target."""
        if self.over_target_count is None or not self.query_count:
            return None
        return self.over_target_count / self.query_count

    @property
    def meets_target(self) -> bool | None:
        """Whether the percentile is at most the target; by LoadGen's rule where the logs do not say which it is.

        Null where there is no target, or LoadGen did not judge.
        """
        if self.target_latency_ns is None:
            return None
        latency = self.percentiles_ns.get(self.target_name or "")
        if latency is not None:
            return latency <= self.target_latency_ns
        return None if self.valid is None else _CONSTRAINTS not in self.broken_rules


def load_test(trace: Trace) -> LoadTest | None:
    """The first LoadGen test of the trace; None where it holds none."""
    return next(iter(tests_in(trace)), None)


def load_tests(view: TraceView) -> list[LoadTest]:
    """What load generators state of their tests, by run."""
    return tests_in(view.trace)


def tests_in(trace: Trace) -> list[LoadTest]:
    runs = trace.frame("runs").filter(pl.col("format") == _FORMAT)["run_id"].to_list()
    if not runs:
        return []
    tests = (
        trace.scan("spans")
        .filter(pl.col("run_id").is_in(runs), pl.col("level") == "application")
        .sort("run_id", "span_id")
        .unique("run_id", keep="first", maintain_order=True)
        .select("run_id", "span_id", pl.col("name").cast(pl.String))
        .collect()
    )
    return [_of(trace, *row) for row in tests.iter_rows()]


def _of(trace: Trace, run: int, span: int, name: str) -> LoadTest:
    rows = trace.scan("metrics").filter(pl.col("span_id") == span).select(pl.col("metric").cast(pl.String), "value")
    # The first of a metric's rows is LoadGen's own word: sources are in order of their names.
    metrics = dict(reversed(list(rows.collect().iter_rows())))
    rules = {m.removesuffix(_RULE).replace("_", " "): bool(v) for m, v in metrics.items() if m.endswith(_RULE)}
    return LoadTest(
        run_id=run,
        test=name,
        valid=bool(metrics["valid"]) if "valid" in metrics else None,
        broken_rules=sorted(rule for rule, kept in rules.items() if not kept),
        reason=_reason(trace, run),
        mean_latency_ns=metrics.get("latency_mean_ns"),
        percentiles_ns={
            m[len(_PERCENTILE) - 1 : -len("_ns")]: v for m, v in sorted(metrics.items()) if m.startswith(_PERCENTILE)
        },
        samples_per_s=metrics.get("completed_sample_per_s", metrics.get("scheduled_sample_per_s")),
        target_latency_ns=metrics.get("target_latency_ns"),
        target_share=metrics.get("target_latency_share"),
        query_count=_count(metrics.get("query_count")),
        over_target_count=_count(metrics.get("overlatency_query_count")),
    )


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _reason(trace: Trace, run: int) -> str:
    """What LoadGen says of why the test is invalid; empty where it says nothing."""
    ledger = trace.frame("ledger").filter(
        pl.col("run_id") == run, pl.col("kind").cast(pl.String) == str(LedgerKind.LOADGEN_INVALID)
    )
    return next((str(advice) for advice in ledger["advice"] if advice), "")
