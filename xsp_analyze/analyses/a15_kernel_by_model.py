"""A15: device time of the whole model beside its latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import BATCH_SIZE, COUNTER_COLUMNS, KERNEL_DURATION, KERNELS, STEP
from xsp_analyze.core import Column, analysis
from xsp_analyze.counters import counted, derived
from xsp_analyze.model_time import model_latency

if TYPE_CHECKING:
    from xsp_analyze.view import View

__all__ = ["kernel_by_model"]


@analysis(
    "A15",
    "kernels by model",
    needs=("kernel",),
    columns=(
        STEP,
        BATCH_SIZE,
        Column("model_latency_ns", pl.Float64(), "Duration of a step, or of the trace where it has none.", "ns"),
        KERNELS,
        KERNEL_DURATION,
        Column("gpu_share", pl.Float64(), "Kernel duration over model latency (times the processes summed over)."),
        *COUNTER_COLUMNS,
    ),
)
def kernel_by_model(view: View) -> pl.LazyFrame:
    """One row a batch size, smallest first; null where the runs do not say it."""
    keys = [*view.by, "batch_size"]
    batches = view.trace.frame("runs").select("run_id", "batch_size")
    sums = (
        view.executions.join(batches, on="run_id", how="left", maintain_order="left")
        .group_by(keys, maintain_order=True)
        .agg(pl.col("count").sum().alias("kernel_count"), pl.col("duration_ns").sum(), *counted(view.executions))
        .lazy()
    )
    latency = model_latency(view.run_latencies, keys).lazy().rename({"latency_ns": "model_latency_ns"})
    return (
        derived(latency.join(sums, on=keys, how="full", coalesce=True, nulls_equal=True), view.ideal_intensity)
        .rename({"duration_ns": "kernel_duration_ns"})
        .with_columns(pl.col("kernel_duration_ns", "kernel_count").fill_null(0))
        .with_columns((pl.col("kernel_duration_ns") / pl.col("model_ns")).alias("gpu_share"))
        .sort(keys, nulls_last=True)
    )
