"""`nsys stats`' CUDA kernel launch and execution summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels, launches, printed_api_name
from xsp_analyze.analyses.nsys.statistics import integer, name_column, spread, spread_columns, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_kern_exec_sum"]

_PARTS = (
    ("total_", "T", "the time from the call's start to the end of both"),
    ("api_", "A", "the call's duration"),
    ("queue_", "Q", "the time from the call's end to the kernel's start, where that is not negative"),
    ("kernel_", "K", "the kernel's duration"),
)
_KEYS = ["process_id", "thread_id", "device_id", "api_name", "name"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows; a kernel with two calls (runtime and driver) counts under both."""
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    call_start, call_end = pl.col("call_start_ns"), pl.col("call_end_ns")
    rows = launches(view, kernels(view)).select(
        "run_id",
        "process_id",
        "thread_id",
        "device_id",
        printed_api_name("call_name").alias("api_name"),
        "name",
        (pl.max_horizontal(end, call_end) - call_start).alias("total"),
        (call_end - call_start).alias("api"),
        pl.when(start >= call_end).then(start - call_end).alias("queue"),
        pl.col("duration_ns").alias("kernel"),
    )
    spreads = [each for prefix, _, _ in _PARTS for each in spread(prefix.removesuffix("_"), prefix)]
    sums = rows.group_by("run_id", *_KEYS).agg(
        pl.len().cast(pl.Int64).alias("count"), pl.col("queue").count().cast(pl.Int64).alias("queue_count"), *spreads
    )
    # nsys sorts by the mean as it rounds it.
    return sums.sort("run_id", *_KEYS).sort(-pl.col("total_mean_ns").round(1), maintain_order=True)


@analysis(
    "cuda_kern_exec_sum",
    "CUDA kernel launch and execution summary",
    needs=("kernels", "runtime"),
    columns=(
        RUN,
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("thread_id", "The thread that launched.", "TID", role=Role.KEY),
        integer("device_id", "The device.", "DevId", role=Role.KEY),
        integer("count", "Launches.", "Count"),
        integer("queue_count", "Launches after whose call the kernel started.", "QCount"),
        *(
            column
            for prefix, initial, what in _PARTS
            for column in spread_columns(what, heading=initial, prefix=prefix)
        ),
        name_column("api_name", "The call that launched.", "API Name"),
        name_column("name", "Name of the kernel.", "Kernel Name"),
    ),
    by_step=False,
)
def cuda_kern_exec_sum(frames: StepView) -> pl.LazyFrame:
    """One row a process, thread, device, call and kernel name, longest mean total first, then by these keys."""
    return with_runs(frames.of_trace, table(frames.of_trace))
