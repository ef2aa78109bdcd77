"""`nsys stats`' trace of NVTX push/pop ranges: each with its place in the stack of its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.nest import nested
from xsp_analyze.analyses.nsys.sources import ranges
from xsp_analyze.analyses.nsys.statistics import integer, name_column, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Role, analysis
from xsp_model.tree import MAX_DEPTH

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_pushpop_trace"]

_THREAD = ("run_id", "process_id", "thread_id")
_ADDED = {
    **dict.fromkeys(("duration_ns", "child_ns", "own_ns", "depth", "child_count", "parent_id"), pl.Int64),
    **dict.fromkeys(("stack", "name_tree"), pl.String),
}


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows, with times on the source's own clock; of equal ranges, and all inside them, there are none."""
    pushed = ranges(view, style="PushPop").sort("range_id").collect()
    parts = [_of_thread(rows) for rows in pushed.partition_by(_THREAD, maintain_order=True)]
    rows = pl.concat([pushed.clear().with_columns(pl.lit(None, kind).alias(c) for c, kind in _ADDED.items()), *parts])
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    moved = rows.lazy().join(origins, on="run_id", how="left", maintain_order="left")
    return moved.with_columns(pl.col("start_ns", "end_ns") + pl.col("clock_origin_ns")).sort(
        "run_id", "start_ns", "duration_ns", "range_id"
    )


def _of_thread(rows: pl.DataFrame) -> pl.DataFrame:
    start, end = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    nest = nested(start, end, rows["range_id"].to_numpy())
    inside = nest.parent >= 0
    parents, duration = nest.parent[inside], end - start
    child = np.zeros(len(start), dtype=np.int64)
    np.add.at(child, parents, duration[inside])
    named = rows.with_columns(
        pl.Series("duration_ns", duration),
        pl.Series("child_ns", child),
        pl.Series("own_ns", duration - child),
        pl.Series("depth", nest.depth),
        pl.Series("child_count", np.bincount(parents, minlength=len(start)).astype(np.int64)),
        rows["range_id"].gather(pl.Series(nest.parent).replace(-1, None)).alias("parent_id"),
        nest.stacks(rows["range_id"]).alias("stack"),
    )
    dashes = pl.lit("--").repeat_by(pl.col("depth").clip(upper_bound=MAX_DEPTH - 1)).list.join("")
    tree = pl.concat_str(dashes, "range_name").alias("name_tree")
    return named.with_columns(tree).select(*rows.columns, *_ADDED).filter(pl.Series(nest.rooted))


@analysis(
    "nvtx_pushpop_trace",
    "NVTX push/pop range trace",
    needs=("ranges",),
    reads={"ranges": ("process_id", "thread_id")},
    columns=(
        RUN,
        integer("start_ns", "Start on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("end_ns", "End; of one never closed, the last moment of all push/pop ranges.", "End (ns)", unit="ns"),
        integer("duration_ns", "Duration.", "Duration (ns)", unit="ns"),
        integer("child_ns", "Sum of the durations of the ranges directly inside.", "DurChild (ns)", unit="ns"),
        integer("own_ns", "Duration less that of the ranges directly inside.", "DurNonChild (ns)", unit="ns"),
        name_column("range_name", "Name of the range, after its domain if it has one.", "Name", role=Role.LABEL),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("thread_id", "The thread.", "TID", role=Role.LABEL),
        integer("depth", "Ranges around it.", "Lvl"),
        integer("child_count", "Ranges directly inside.", "NumChild"),
        integer("range_id", "The source's number of the range.", "RangeId", role=Role.KEY),
        integer("parent_id", "The number of the tightest range around it.", "ParentId", role=Role.LABEL),
        name_column(
            "stack",
            "Numbers of ranges from the outermost down to it; null: over 512.",
            "RangeStack",
            role=Role.LABEL,
        ),
        name_column(
            "name_tree",
            "Its name behind two dashes for each range around it, 511 at most.",
            "NameTree",
            role=Role.LABEL,
        ),
    ),
    by_step=False,
)
def nvtx_pushpop_trace(frames: StepView) -> pl.LazyFrame:
    """One row a range that was pushed and popped, by start, then duration."""
    return with_runs(frames.of_trace, table(frames.of_trace))
