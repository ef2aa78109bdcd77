"""`nsys recipe` gpu_metric_util_map: how busy multiprocessors and tensor cores were, over the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, with_runs
from xsp_analyze.analyses.recipes.common import FILE, with_file
from xsp_analyze.analyses.recipes.heatmap import BINS, sessions
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, FigureSpec, Role, analysis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.analyses.recipes.heatmap import Session
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["gpu_metric_util_map"]

_METRICS = {  # as versions of nsys call them, and the recipe's heading
    "sm_active_share": (r"^SMs? Active$", "SM Active"),
    "sm_issue_share": (r"^SM Issue$", "SM Issue"),
    "tensor_active_share": (r"^Tensor Active$", "Tensor Active"),
}
_GPU = ("run_id", "device_id")


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows; a sample counts in the bin that it ends, as the recipe has it."""
    metric = pl.coalesce(
        pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(ours)) for ours, (pattern, _) in _METRICS.items()
    )
    counters = view.timed_runs.scan("counters")
    names = counters.select(pl.col("counter").unique()).with_columns(name=pl.col("counter").cast(pl.String))
    sampled = names.select("counter", metric=metric).drop_nulls()
    samples = counters.join(sampled, on="counter", how="inner", maintain_order="left").collect()
    captures = sessions(view)
    parts = [_binned(rows, captures[rows["run_id"][0]]) for rows in samples.partition_by("run_id")]
    rows = pl.concat([samples.clear().with_columns(bin_start_ns=pl.lit(None, pl.Int64)), *parts])
    value = pl.col("value")
    means = rows.group_by(*_GPU, "bin_start_ns").agg(
        value.filter(pl.col("metric") == name).mean().alias(name) for name in _METRICS
    )
    return with_file(view, means.lazy()).sort(*_GPU, "bin_start_ns")


def _binned(samples: pl.DataFrame, session: Session) -> pl.DataFrame:
    at = samples["time_ns"].to_numpy() + session.origin_ns
    index = -(-at // session.bin_ns) - 1
    inside = (at >= session.start_ns) & (at <= session.end_ns) & (index >= 0) & (index < BINS)
    starts = pl.Series("bin_start_ns", (index * session.bin_ns).astype(np.int64))
    return samples.with_columns(starts).filter(pl.Series(inside))


def _columns() -> Mapping[str, Column]:
    whats = ("multiprocessors had work", "multiprocessors issued instructions", "tensor cores were at work")
    return {
        name: Column(
            name,
            pl.Float64(),
            f"Mean of the samples of how much of their time {what}; null: not sampled.",
            "share",
            header=header,
            decimals=1,
        )
        for (name, (_, header)), what in zip(_METRICS.items(), whats, strict=True)
    }


@analysis(
    "gpu_metric_util_map",
    "Use of multiprocessors and tensor cores over the capture",
    needs=("GPU metrics",),
    columns=(
        RUN,
        integer("bin_start_ns", "Start of the thirtieth of the capture.", "Duration", role=Role.KEY, unit="ns"),
        *_columns().values(),
        integer("device_id", "The device.", "GPU", role=Role.KEY),
        FILE,
    ),
    figure=FigureSpec("bars", x="bin_start_ns", y=("sm_active_share",), title="Multiprocessors with work"),
    by_step=False,
)
def gpu_metric_util_map(frames: StepView) -> pl.LazyFrame:
    """One row a run, device and thirtieth of the longest capture that has samples, in that order."""
    return with_runs(frames.of_trace, table(frames.of_trace))
