"""What MLPerf LoadGen said of a test: its scenario, whether it was valid, and its percentiles."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (a dataclass's own field)
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["LoadGen", "load_test"]

_FORMAT = "loadgen"


@dataclass(frozen=True, slots=True)
class LoadGen:
    """One test; `valid` null: LoadGen did not judge. Latencies in ns by name (`p99_00`), rates per second."""

    test: str
    valid: bool | None
    broken_rules: list[str]
    percentiles_ns: Mapping[str, float]
    samples_per_s: float | None


def load_test(trace: Trace) -> LoadGen | None:
    """The first LoadGen test of the trace; None where it holds none."""
    runs = trace.frame("runs").filter(pl.col("format") == _FORMAT)["run_id"]
    tests = (
        trace.scan("spans")
        .filter(pl.col("run_id").is_in(runs.to_list()), pl.col("level") == "application")
        .select("span_id", pl.col("name").cast(pl.String))
        .sort("span_id")
        .head(1)
        .collect()
    )
    if tests.is_empty():
        return None
    span, name = tests.row(0)
    rows = trace.scan("metrics").filter(pl.col("span_id") == span).select(pl.col("metric").cast(pl.String), "value")
    # The first of a metric's rows is LoadGen's own word: sources are in order of their names.
    metrics = dict(reversed(list(rows.collect().iter_rows())))
    suffix, prefix = "_satisfied", "latency_p"
    return LoadGen(
        name,
        bool(metrics["valid"]) if "valid" in metrics else None,
        sorted(m.removesuffix(suffix).replace("_", " ") for m, v in metrics.items() if m.endswith(suffix) and not v),
        {m[len(prefix) - 1 : -len("_ns")]: v for m, v in sorted(metrics.items()) if m.startswith(prefix)},
        metrics.get("completed_sample_per_s", metrics.get("scheduled_sample_per_s")),
    )
