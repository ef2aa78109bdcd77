"""Latency of the model: how long a step takes, or the whole trace where it has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.steps import StepMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = ["model_latency", "run_latencies", "timed_latency"]


def run_latencies(trace: Trace, mode: StepMode, steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """One row a run (and step, where each is answered): batch_size, latency_ns, durations (of steps), processes.

    The trimmed mean of its steps; their sum where the trace is taken whole; its extent, first start to last end of
    anything, where it has none. `processes` is how many of its processes used devices, at least 1.
    """
    latency = trimmed_mean(pl.col("duration_ns")) if mode is StepMode.MEAN else pl.col("duration_ns").sum()
    keys = ["run_id", "step"] if mode is StepMode.EACH else ["run_id"]
    latencies = steps.group_by(keys, maintain_order=True).agg(
        latency.alias("latency_ns"), pl.col("duration_ns").alias("durations")
    )
    if mode is StepMode.ALL:
        others = sorted(set(trace.frame("runs")["run_id"]) - set(latencies["run_id"]))
        latencies = pl.concat([latencies, _extents(trace, others)]) if others else latencies
    processes = activities.group_by("run_id").agg(pl.col("process_id").n_unique().cast(pl.Int64).alias("processes"))
    return (
        latencies.join(trace.scan("runs").select("run_id", "batch_size").collect(), on="run_id", how="left")
        .join(processes, on="run_id", how="left")
        .with_columns(pl.col("processes").fill_null(1))
        .sort(keys)
    )


def _extents(trace: Trace, runs: Sequence[int]) -> pl.DataFrame:
    end = pl.col("start_ns") + pl.col("duration_ns").fill_null(0)
    return (
        trace.scan("spans")
        .filter(pl.col("run_id").is_in(list(runs)))
        .group_by("run_id")
        .agg(
            (end.max() - pl.col("start_ns").min()).alias("latency_ns"),
            pl.col("duration_ns").is_not_null().any().alias("timed"),
        )
        .filter("timed")  # a run of which nothing was timed has no extent, not one of 0
        .drop("timed")
        .with_columns(pl.concat_list("latency_ns").alias("durations"))
        .collect()
    )


def model_latency(latencies: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row (a key in `by`): latency_ns, the mean over runs, which ran side by side; and model_ns.

    `model_ns` is what shares are taken of: run latencies summed over runs and their processes, as device time is.
    """
    one = pl.len() == 1
    measures = (
        pl.when(one).then(pl.col("latency_ns").sum()).otherwise(pl.col("latency_ns").mean()).alias("latency_ns"),
        (pl.col("latency_ns") * pl.col("processes")).sum().alias("model_ns"),
    )
    if latencies["run_id"].n_unique() <= 1:
        measures = (pl.col("latency_ns").sum(), measures[1])
    return latencies.group_by(by, maintain_order=True).agg(measures) if by else latencies.select(measures)


def timed_latency(trace: Trace, steps: pl.DataFrame, runs: Sequence[int]) -> float | None:
    """The trimmed mean step of these runs in ns, None where they have none, to compare with a run without a profiler.

    It is timed around the model's call where the runs say so, as that run is, else by the spans of steps.
    """
    timed = Roles.of(trace.frame("step_times"), runs)
    mean = (timed if timed.height else Roles.of(steps, runs)).select(trimmed_mean(pl.col("duration_ns"))).item()
    return None if mean is None else float(mean)
