"""`nsys stats`' NVTX GPU projection trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.projection import PROJECTION_READS, projected
from xsp_analyze.analyses.nsys.statistics import integer, name_column, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_gpu_proj_trace"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows, with starts on the source's own clock."""
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    origin = pl.col("clock_origin_ns")
    return (
        projected(view)
        .lazy()
        .join(origins, on="run_id", how="left", maintain_order="left")
        .with_columns(
            (pl.col("projected_end_ns") - pl.col("projected_start_ns")).alias("projected_ns"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            pl.col("projected_start_ns") + origin,
            pl.col("start_ns") + origin,
        )
    )


@analysis(
    "nvtx_gpu_proj_trace",
    "NVTX GPU projection trace",
    needs=("ranges", "runtime", "kernel"),
    reads=PROJECTION_READS,
    columns=(
        RUN,
        name_column("range_name", "Name of the range, after its domain; null: launched in no range.", "Name"),
        integer("projected_start_ns", "First start of the work launched inside.", "Projected Start (ns)", unit="ns"),
        integer("projected_ns", "From there to the last end, gaps included.", "Projected Duration (ns)", unit="ns"),
        integer("start_ns", "Start on the host.", "Orig Start (ns)", unit="ns"),
        integer("duration_ns", "Duration on the host.", "Orig Duration (ns)", unit="ns"),
        name_column("style", "PushPop, StartEnd or Annotation.", "Style", role=Role.LABEL),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("thread_id", "The thread.", "TID", role=Role.LABEL),
        integer("operation_count", "Launches inside that put work on a device.", "NumGPUOps"),
        integer("depth", "Ranges around it.", "Lvl"),
        integer("child_count", "Ranges directly inside that launched work.", "NumChild"),
        integer("range_id", "The source's number of the range.", "RangeId", role=Role.KEY),
        integer("parent_id", "The number of the tightest range around it.", "ParentId", role=Role.LABEL),
        name_column(
            "stack",
            "Numbers of ranges from the outermost down to it; null: over 512.",
            "RangeStack",
            role=Role.LABEL,
        ),
    ),
    by_step=False,
)
def nvtx_gpu_proj_trace(frames: StepView) -> pl.LazyFrame:
    """One row a range that launched device work, by its number; the first row is for work launched in no range."""
    return with_runs(frames.of_trace, table(frames.of_trace))
