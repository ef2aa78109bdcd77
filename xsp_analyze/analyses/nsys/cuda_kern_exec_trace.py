"""`nsys stats`' CUDA kernel launch and execution trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels, launches, printed_api_name
from xsp_analyze.analyses.nsys.statistics import integer, name_column, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_kern_exec_trace"]

_WIDTH = 4  # each size is printed so wide at least


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows, with times on the source's own clock; a kernel with two calls stands under both."""
    rows = launches(view, kernels(view)).join(
        view.timed_runs.scan("runs").select("run_id", "clock_origin_ns"), on="run_id", how="left", maintain_order="left"
    )
    end, call_end = pl.col("start_ns") + pl.col("duration_ns"), pl.col("call_end_ns")
    queued, origin = pl.col("start_ns") >= call_end, pl.col("clock_origin_ns")
    return rows.select(
        "run_id",
        "span_id",
        "call_id",
        (pl.col("call_start_ns") + origin).alias("call_start_ns"),
        (call_end - pl.col("call_start_ns")).alias("call_ns"),
        pl.when(queued).then(call_end + origin).alias("queue_start_ns"),
        pl.when(queued).then(pl.col("start_ns") - call_end).alias("queue_ns"),
        (pl.col("start_ns") + origin).alias("start_ns"),
        "duration_ns",
        (pl.max_horizontal(end, call_end) - pl.col("call_start_ns")).alias("total_ns"),
        "process_id",
        "thread_id",
        "device_id",
        printed_api_name("call_name").alias("api_name"),
        *(_sizes(what) for what in ("grid", "block")),
        "name",
    ).sort("call_start_ns", "start_ns", "span_id", "call_id")


def _sizes(what: str) -> pl.Expr:
    return pl.concat_str(
        (pl.col(f"{what}_{axis}").cast(pl.String).str.pad_start(_WIDTH) for axis in "xyz"), separator=" "
    ).alias(what)


@analysis(
    "cuda_kern_exec_trace",
    "CUDA kernel launch and execution trace",
    needs=("kernels", "runtime"),
    key=(),  # rounded clocks put launches of one name at one start
    columns=(
        RUN,
        integer("call_start_ns", "Start of the call, on the profiler's own clock.", "API Start (ns)", unit="ns"),
        integer("call_ns", "Duration of the call.", "API Dur (ns)", unit="ns"),
        integer("queue_start_ns", "End of the call, where the kernel started after it.", "Queue Start (ns)", unit="ns"),
        integer("queue_ns", "From there to the kernel's start.", "Queue Dur (ns)", unit="ns"),
        integer("start_ns", "Start of the kernel.", "Kernel Start (ns)", unit="ns"),
        integer("duration_ns", "Duration of the kernel.", "Kernel Dur (ns)", unit="ns"),
        integer("total_ns", "From the call's start to the end of both.", "Total Dur (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("thread_id", "The thread that launched.", "TID", role=Role.LABEL),
        integer("device_id", "The device.", "DevId", role=Role.LABEL),
        name_column("api_name", "The call that launched.", "API Function", role=Role.LABEL),
        name_column("grid", "Blocks of the grid along x, y and z.", "GridXYZ", role=Role.LABEL),
        name_column("block", "Threads of a block along x, y and z.", "BlockXYZ", role=Role.LABEL),
        name_column("name", "Name of the kernel.", "Kernel Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_kern_exec_trace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel and call that launched it, by the call's start, then the kernel's."""
    return with_runs(frames.of_trace, table(frames.of_trace))
