"""Latency of the model: how long a step takes, or the whole trace where it has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.step_windows import StepBasis
from xsp_analyze.frames.steps import StepMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.frames.trace_frames import TraceFrames
    from xsp_model import Trace

__all__ = ["model_latency", "run_latencies", "timed_latency"]


def run_latencies(frames: TraceFrames, mode: StepMode, steps: pl.DataFrame) -> pl.DataFrame:
    """One row a run (and step, where each is answered): batch_size, latency_ns, durations (of steps), basis, devices.

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
    used = frames.device_work.select("run_id", "process_id", "device_id").unique()
    devices = used.group_by("run_id").agg(pl.len().cast(pl.Int64).alias("devices"))
    return (
        latencies.join(frames.trace.scan("runs").select("run_id", "batch_size").collect(), on="run_id", how="left")
        .join(devices, on="run_id", how="left")
        .with_columns(pl.col("devices").fill_null(1))
        .sort(keys)
    )


def _of_all(frames: TraceFrames, steps: pl.DataFrame) -> pl.DataFrame:
    """The latency of each run taken whole: of runs timed without a profiler the sum of their steps, else its extent."""
    duration = pl.col("duration_ns")
    timed = (
        steps.filter(pl.col("basis") == str(StepBasis.TIMED))
        .group_by("run_id", maintain_order=True)
        .agg(duration.sum().alias("latency_ns"), duration.alias("durations"), pl.lit(["sum"]).first().alias("basis"))
    )
    marked = steps.group_by("run_id", maintain_order=True).agg(duration.alias("durations"))
    extents = (
        frames.seen.join(timed, on="run_id", how="anti")
        .join(marked, on="run_id", how="left")
        .select("run_id", (pl.col("end_ns") - pl.col("begin_ns")).alias("latency_ns"), "durations")
        .with_columns(
            pl.col("durations").fill_null(pl.concat_list("latency_ns")), pl.lit(["extent"]).first().alias("basis")
        )
    )
    return pl.concat([timed, extents.select(timed.columns)])


def model_latency(latencies: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row (a key in `by`): latency_ns, the mean over runs, which ran side by side; and model_ns.

    `model_ns` is what shares are taken of: run latencies summed over runs and their devices, as device time is;
    `device_count` is how many these are.
    """
    one = pl.len() == 1
    measures = (
        pl.when(one).then(pl.col("latency_ns").sum()).otherwise(pl.col("latency_ns").mean()).alias("latency_ns"),
        (pl.col("latency_ns") * pl.col("devices")).sum().alias("model_ns"),
        pl.col("devices").sum().alias("device_count"),
    )
    if latencies["run_id"].n_unique() <= 1:
        measures = (pl.col("latency_ns").sum(), *measures[1:])
    return latencies.group_by(by, maintain_order=True).agg(measures) if by else latencies.select(measures)


def timed_latency(trace: Trace, steps: pl.DataFrame, runs: Sequence[int]) -> float | None:
    """The trimmed mean step of these runs in ns, None where they have none, to compare with a run without a profiler.

    It is timed around the model's call where the runs say so, as that run is, else by the spans of steps.
    """
    timed = Roles.of(trace.frame("step_times"), runs)
    mean = (timed if timed.height else Roles.of(steps, runs)).select(trimmed_mean(pl.col("duration_ns"))).item()
    return None if mean is None else float(mean)
