"""What keeps a GPU busy in the sense of nsys' rules: kernels, copies, memsets, and profiling overhead between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.recipes.common import on_source_clock
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["GPU", "operations"]

GPU = ("run_id", "process_id", "device_id")
"""What one row of the rules is about: a device in a process of a run."""

_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)  # nsys leaves out graphs replayed as a whole
_OVERHEAD = "cuda_profiling_overhead_ns"


def operations(view: TraceView) -> pl.LazyFrame:
    """One row an operation: GPU, context_id, start_ns and end_ns as the profiler stamped them.

    Overhead that lies wholly between the first and the last operation of a device counts as one.
    """
    spans = view.kernel_runs.scan("spans").filter(pl.col("kind").cast(pl.String).is_in(_KINDS))
    stamped = on_source_clock(view, spans.select(*GPU, "context_id", "start_ns", "duration_ns"), ("start_ns",))
    work = stamped.filter(pl.col("start_ns") > 0, pl.col("duration_ns").is_not_null()).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    work = work.drop("duration_ns")
    return pl.concat([work, _overhead(view, work)])


def _overhead(view: TraceView, work: pl.LazyFrame) -> pl.LazyFrame:
    counters = view.kernel_runs.scan("counters").filter(pl.col("counter").cast(pl.String) == _OVERHEAD)
    stamped = on_source_clock(view, counters, ("time_ns",)).select(
        "run_id",
        "device_id",
        pl.col("time_ns").alias("start_ns"),
        (pl.col("time_ns") + pl.col("value").cast(pl.Int64)).alias("end_ns"),
    )
    windows = work.group_by(GPU).agg(
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("end_ns").max().alias("last_ns"),
        pl.col("context_id").sort_by("end_ns").last(),
    )
    inside = stamped.join(windows, on=["run_id", "device_id"]).filter(
        pl.col("start_ns") > pl.col("first_ns"), pl.col("end_ns") < pl.col("last_ns")
    )
    return inside.select(*GPU, "context_id", "start_ns", "end_ns")
