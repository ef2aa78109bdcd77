"""`nsys stats`' NVTX range kernel summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.launched import THREAD, by_thread
from xsp_analyze.analyses.nsys.sources import kernels, launches
from xsp_analyze.analyses.nsys.statistics import integer, name_column, spread, spread_columns, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_kern_sum"]

_KEYS = ["process_id", "thread_id", "range_name", "style", "name"]
_KERNEL = [*THREAD, "span_id", "name", "duration_ns"]
_RANGE = ["range_id", "range_name", "style"]


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows; a kernel counts under every range around its call, and once more for a second call."""
    all_kernels = kernels(view).select(
        "run_id", "process_id", "correlation_id", "thread_id", "span_id", "name", "duration_ns"
    )
    launched = launches(view, all_kernels)
    parts = [_summary(_without_launch(all_kernels, launched).collect())]
    for thread in by_thread(view, launched):
        parts.append(_summary(thread.inside(_KERNEL, _RANGE)))
        parts.append(_summary(thread.outside.select(_KERNEL)))
    return (
        pl.concat(parts)
        .lazy()
        .sort("run_id", *_KEYS)
        .sort("range_name", "process_id", "thread_id", -pl.col("total_ns"), maintain_order=True)
    )


def _without_launch(all_kernels: pl.LazyFrame, launched: pl.LazyFrame) -> pl.LazyFrame:
    """Kernels whose launch is not in the trace; nsys shows them under no process and thread."""
    unknown = pl.lit(None, dtype=pl.Int64)
    lost = all_kernels.join(launched.select("span_id").unique(), on="span_id", how="anti")
    return lost.with_columns(unknown.alias("process_id"), unknown.alias("thread_id")).select(_KERNEL)


def _summary(rows: pl.DataFrame) -> pl.DataFrame:
    nothing = {"range_id": pl.Int64, "range_name": pl.String, "style": pl.String}
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items() if name not in rows.columns]
    return (
        rows.with_columns(absent)
        .group_by("run_id", *_KEYS)
        .agg(
            pl.col("range_id").drop_nulls().n_unique().cast(pl.Int64).alias("range_count"),
            pl.col("span_id").n_unique().cast(pl.Int64).alias("kernel_count"),
            pl.col("duration_ns").sum().alias("total_ns"),
            *spread("duration_ns"),
        )
    )


@analysis(
    "nvtx_kern_sum",
    "NVTX range kernel summary",
    needs=("ranges", "runtime", "kernels"),
    columns=(
        RUN,
        name_column("range_name", "Name of the range, after its domain; null: launched in no range.", "NVTX Range"),
        name_column("style", "PushPop, StartEnd or Annotation.", "Style"),
        integer("process_id", "The process; null: launch not recorded.", "PID", role=Role.KEY),
        integer("thread_id", "The thread; null: launch not recorded.", "TID", role=Role.KEY),
        integer("range_count", "Ranges of the name around launches of the kernel.", "NVTX Inst"),
        integer("kernel_count", "Kernels.", "Kern Inst"),
        integer("total_ns", "Sum of their durations.", "Total Time (ns)", unit="ns"),
        *spread_columns("the durations of the kernels"),
        name_column("name", "Name of the kernel.", "Kernel Name"),
    ),
    by_step=False,
)
def nvtx_kern_sum(frames: StepView) -> pl.LazyFrame:
    """One row a range name, style, process, thread and kernel name, by range and thread, most total time first."""
    return with_runs(frames.of_trace, table(frames.of_trace))
