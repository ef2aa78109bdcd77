"""Latency of the model: of a step or of the whole trace, and as load generators measured it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (a dataclass's own field)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_model import LedgerKind
from xsp_model.vocabulary import Recorder, formats_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = [
    "LoadTest",
    "latency_by_run",
    "latency_of_model",
    "latency_over_runs",
    "load_test",
    "load_tests",
    "tests_in",
    "timed_latency",
    "with_model_time",
]

# What load generators (MLPerf's, clients of serving engines) said of their tests: scenario, validity, rates, latencies,
# and the latency that it was held to.

_RULE, _PERCENTILE = "_satisfied", "latency_p"
_CONSTRAINTS = "performance constraints"
_QUEUED = ("Server", "Offline", "serving load")


@dataclass(frozen=True, slots=True)
class LoadTest:
    """One test; `valid` null: LoadGen did not judge. Latencies in ns, percentiles by name (`p99_00`), rates per second.

    `figures` are all that it states, and what its queries tell, by metric.
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
    figures: Mapping[str, float] = field(default_factory=dict)

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
    of_generator = pl.col("format").is_in(formats_by(Recorder.LOAD_GENERATOR))
    runs = trace.frame("runs").filter(of_generator)["run_id"].to_list()
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
        figures=metrics,
    )


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _reason(trace: Trace, run: int) -> str:
    """What LoadGen says of why the test is invalid; empty where it says nothing."""
    ledger = trace.frame("ledger").filter(
        pl.col("run_id") == run, pl.col("kind").cast(pl.String) == str(LedgerKind.LOADGEN_INVALID)
    )
    return next((str(advice) for advice in ledger["advice"] if advice), "")


# Latency of the model: of a step, or of the whole trace.


def with_model_time(view: StepView, frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with `model_ns` added: the time that shares of the model are of; null where there was none."""
    model = pl.col("model_ns")
    latency = view.once(latency_of_model).lazy().select(*view.by, pl.when(model > 0).then(model))
    return frame.join(latency, on="step", how="left") if view.by else frame.join(latency, how="cross")


def latency_of_model(view: StepView) -> pl.DataFrame:
    """Model latency over all runs; see `latency_over_runs`."""
    return latency_over_runs(view.once(latency_by_run), view.by)


def latency_by_run(view: StepView) -> pl.DataFrame:
    """Model latency per run, of those that it is taken from; see `_run_latencies`."""
    runs = view.of_trace.model_runs
    return runs.of(_run_latencies(view.of_trace, view.choice.mode, runs.of(view.steps)))


def _run_latencies(frames: TraceView, mode: StepMode, steps: pl.DataFrame) -> pl.DataFrame:
    """One row a run (and step, where each is answered): batch_size, latency_ns, durations (of steps), basis, devices.

    And what a load generator states of the run (see `_with_load_tests`): load_test_median_ns,
    load_test_per_s, is_queued.

    The trimmed mean of its steps; where the trace is taken whole, its extent, first start to last end of anything (of
    steps timed without a profiler, their sum). `basis` says which, as a list of words of `StepBasis`, `extent` or
    `sum`; `devices` is how many devices its processes used, at least 1.
    """
    keys = ["run_id", "step"] if mode is StepMode.EACH else ["run_id"]
    if mode is StepMode.ALL:
        latencies = _of_all(frames, steps)
    else:
        latency = trimmed_mean(pl.col("duration_ns")) if mode is StepMode.MEAN else pl.col("duration_ns").sum()
        latencies = steps.group_by(keys, maintain_order=True).agg(
            latency.alias("latency_ns"),
            pl.col("duration_ns").alias("durations"),
            pl.col("basis").unique(maintain_order=True),
        )
    latencies = _with_load_tests(frames, mode, latencies)
    used = frames.device_work.select("run_id", "process_id", "device_id").unique()
    devices = used.group_by("run_id").agg(pl.len().cast(pl.Int64).alias("devices"))
    return (
        latencies.join(frames.trace.scan("runs").select("run_id", "batch_size").collect(), on="run_id", how="left")
        .join(devices, on="run_id", how="left")
        .with_columns(pl.col("devices").fill_null(1))
        .sort(keys)
    )


_OF_LOAD_TEST = {"load_test_median_ns": pl.Float64(), "load_test_per_s": pl.Float64(), "is_queued": pl.Boolean()}


def _with_load_tests(frames: TraceView, mode: StepMode, latencies: pl.DataFrame) -> pl.DataFrame:
    """The latencies with what load generators state of their tests as a whole; a single query is as its trace has it.

    The mean latency that they state goes before that of the trace's queries, and stands where there is no trace.
    """
    tests = [] if mode in {StepMode.EACH, StepMode.ONE} else frames.once(load_tests)
    if not tests:
        empty = (pl.lit(None, kind).alias(name) for name, kind in _OF_LOAD_TEST.items())
        return latencies.with_columns(empty).with_columns(pl.col("is_queued").fill_null(value=False))
    rows = [
        (test.run_id, test.mean_latency_ns, test.percentiles_ns.get("p50_00"), test.samples_per_s, test.has_queueing)
        for test in tests
    ]
    schema = {"run_id": pl.Int64(), "load_test_ns": pl.Float64(), **_OF_LOAD_TEST}
    of_tests = pl.DataFrame(rows, schema=schema, orient="row")
    is_useful = pl.col("load_test_ns").is_not_null() | pl.col("load_test_per_s").is_not_null()
    missing = of_tests.filter(is_useful).join(latencies, on="run_id", how="anti").select("run_id")
    joined = pl.concat([latencies, missing], how="diagonal").join(of_tests, on="run_id", how="left")
    taken = pl.col("load_test_ns").is_not_null()
    if mode is StepMode.ALL:
        taken &= pl.col("latency_ns").is_null()  # asked for whole, a trace is its extent
    latency = pl.col("load_test_ns").cast(latencies.schema["latency_ns"])
    basis = pl.lit([str(StepBasis.LOAD_TEST)]).first()
    return joined.with_columns(
        pl.when(taken).then(latency).otherwise("latency_ns").alias("latency_ns"),
        pl.when(taken).then(basis).otherwise("basis").alias("basis"),
        pl.col("durations").fill_null([]),
        pl.col("is_queued").fill_null(value=False),
    ).drop("load_test_ns")


def _of_all(frames: TraceView, steps: pl.DataFrame) -> pl.DataFrame:
    """The latency of each run taken whole: of runs timed without a profiler the sum of their steps, else its extent."""
    duration = pl.col("duration_ns")
    timed = (
        steps.filter(pl.col("basis") == str(StepBasis.TIMED))
        .group_by("run_id", maintain_order=True)
        .agg(duration.sum().alias("latency_ns"), duration.alias("durations"), pl.lit(["sum"]).first().alias("basis"))
    )
    marked = steps.group_by("run_id", maintain_order=True).agg(duration.alias("durations"))
    extents = (
        frames.extents_seen.join(timed, on="run_id", how="anti")
        .join(marked, on="run_id", how="left")
        .select("run_id", (pl.col("end_ns") - pl.col("begin_ns")).alias("latency_ns"), "durations")
        .with_columns(
            pl.col("durations").fill_null(pl.concat_list("latency_ns")), pl.lit(["extent"]).first().alias("basis")
        )
    )
    return pl.concat([timed, extents.select(timed.columns)])


def latency_over_runs(latencies: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row (a key in `by`): latency_ns, the mean over runs, which ran side by side; and model_ns.

    `model_ns` is what shares are taken of: run latencies summed over runs and their devices, as device time is (null
    where queries waited in a queue: nothing is a share of that); `device_count` is how many these are.
    """
    one = pl.len() == 1
    unknown = (pl.len() > 0) & pl.col("latency_ns").is_null().all()  # a sum of these would be 0
    total = pl.when(~unknown).then(pl.col("latency_ns").sum()).alias("latency_ns")
    measures = (
        pl.when(one).then(total).otherwise(pl.col("latency_ns").mean()).alias("latency_ns"),
        pl.when(~pl.col("is_queued").any() & ~unknown)
        .then((pl.col("latency_ns") * pl.col("devices")).sum())
        .alias("model_ns"),
        pl.col("devices").sum().alias("device_count"),
    )
    if latencies["run_id"].n_unique() <= 1:
        measures = (total, *measures[1:])
    return latencies.group_by(by, maintain_order=True).agg(measures) if by else latencies.select(measures)


def timed_latency(frames: TraceView, runs: Runs) -> float | None:
    """The trimmed mean step of these runs in ns, None where they have none, to compare with a run without a profiler.

    It is timed around the model's call where the runs say so, as that run is, else by the spans of steps. Of a load
    test it is the mean that it states, unless its queries waited in a queue: no step is comparable to these.
    """
    tests = [test for test in frames.once(load_tests) if test.run_id in runs]
    if tests:
        return None if any(test.has_queueing for test in tests) else tests[0].mean_latency_ns
    timed = runs.frame("step_times")
    mean = (timed if timed.height else runs.of(frames.all_steps)).select(trimmed_mean(pl.col("duration_ns")))
    return None if mean.item() is None else float(mean.item())
