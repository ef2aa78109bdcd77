"""Values of every step: latency, busy share, device time in layers and most memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import class_time, device_windows
from xsp_analyze.frames.model_time import latency_of_model
from xsp_model import Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "busy_by_step",
    "coverage_by_step",
    "latency_by_step",
    "mean_of_several",
    "peak_memory_by_step",
    "throughput_by_step",
]


def latency_by_step(view: StepView) -> pl.DataFrame:
    """Step and value, in ns: the mean over the runs that latency is taken from."""
    each = view.of_each_step
    return each.once(latency_of_model).select("step", pl.col("latency_ns").cast(pl.Float64).alias("value"))


def busy_by_step(view: StepView) -> pl.DataFrame:
    """Step and value: the share of the time of all devices in which they worked."""
    each = view.of_each_step
    windows = device_windows(each).group_by("step").agg((pl.col("end_ns") - pl.col("begin_ns")).sum().alias("window"))
    busy = each.once(class_time).group_by("step").agg(pl.col("time_ns").sum())
    shares = windows.filter(pl.col("window") > 0).join(busy, on="step", how="left")
    return shares.select("step", quotient(pl.col("time_ns").fill_null(0), pl.col("window")).alias("value"))


def coverage_by_step(view: StepView) -> pl.DataFrame:
    """Step and value: the share of device time that is in a layer."""
    in_layer = (pl.col("attribution") == str(Attribution.LAYER)).fill_null(value=False)
    time = pl.col("duration_ns")
    return (
        view.of_trace.all_activities.filter(pl.col("step").is_not_null())
        .group_by("step")
        .agg(time.sum().alias("all"), time.filter(in_layer).sum().alias("tied"))
        .filter(pl.col("all") > 0)
        .select("step", quotient(pl.col("tied"), pl.col("all")).alias("value"))
    )


def peak_memory_by_step(view: StepView, series: Mapping[str, Any]) -> pl.DataFrame:
    """Step and value, in bytes: the most of one series of B09 while the step's range was open on the host."""
    samples = (
        view.of_trace.own_runs.scan("counters")
        .filter(
            pl.col("run_id") == series["run_id"],
            pl.col("device_id").eq_missing(pl.lit(series["device_id"], pl.Int64)),
            pl.col("counter").cast(pl.String) == series["counter"],
        )
        .select("time_ns", "value")
        .sort("time_ns")
        .collect()
    )
    time, value = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    of_run = view.every_step.filter(pl.col("run_id") == series["run_id"])
    start = of_run["start_ns"].to_numpy()
    first = np.maximum(np.searchsorted(time, start, side="right") - 1, 0)  # what was held as the step began counts
    last = np.searchsorted(time, start + of_run["host_ns"].to_numpy(), side="right")
    peaks = [float(value[i:j].max()) if i < j else None for i, j in zip(first, last, strict=True)]
    return of_run.select("step").with_columns(pl.Series("value", peaks, dtype=pl.Float64)).drop_nulls()


def throughput_by_step(view: StepView, inputs_per_s: float, latency_ns: float) -> pl.DataFrame:
    """Step and value, in inputs a second: as many inputs as the mean step takes, over the latency of each."""
    of_step = pl.col("value")
    rows = latency_by_step(view).filter(of_step > 0)
    return rows.select("step", quotient(pl.lit(inputs_per_s * latency_ns), of_step).alias("value"))


def mean_of_several(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    """Of step, value and is_left_out, so many rows as one: the first step, the mean, and whether all are left out."""
    together = rows.with_row_index("row").group_by(pl.col("row") // number, maintain_order=True)
    return together.agg(pl.col("step").first(), pl.col("value").mean(), pl.col("is_left_out").all())
