"""NVTX ranges on the host in `nsys stats`: summaries, the stack of each thread, and kernels launched inside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import (
    THREAD,
    containing,
    integer,
    kernels,
    launches,
    name_column,
    named_ranges,
    nest_of_ranges,
    on_source_clock,
    spread,
    spread_columns,
    summary,
    time_columns,
    with_runs,
)
from xsp_analyze.columns import RUN
from xsp_analyze.core import Analysis, Role, analysis
from xsp_model.columns.tree import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Ints

__all__ = [
    "nvtx_kern_sum",
    "nvtx_pushpop_sum",
    "nvtx_pushpop_trace",
    "nvtx_startend_sum",
    "nvtx_sum",
]


_READS = {"ranges": ("process_id", "thread_id")}
_NAME = name_column("range_name", "Name of the range, after its domain if it has one.", "Range")
_STYLE = name_column("style", "PushPop, StartEnd or Annotation.", "Style")


@analysis(
    "nvtx_sum",
    "NVTX range summary",
    needs=("ranges",),
    reads=_READS,
    columns=(*time_columns("the durations of the ranges", "Instances"), _STYLE, _NAME),
    by_step=False,
)
def nvtx_sum(frames: StepView) -> pl.LazyFrame:
    """One row a range name and style, most total time first, then by name."""
    return _sums(named_ranges(frames.of_trace), ["range_name", "style"])


def _sums(ranges: pl.LazyFrame, by: list[str]) -> pl.LazyFrame:
    timed = ranges.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return summary(timed, by).sort(-pl.col("total_ns"), maintain_order=True)


def _sum_of_style(identity: str, title: str, style: str, how: str) -> Analysis:
    """The summary of the ranges of one style."""

    def sum_of_style(frames: StepView) -> pl.LazyFrame:
        return _sums(named_ranges(frames.of_trace).filter(pl.col("style") == style), ["range_name"])

    sum_of_style.__doc__ = f"One row a name of ranges that were {how}, most total time first, then by name."
    columns = (*time_columns("the durations of the ranges", "Instances"), _NAME)
    return analysis(identity, title, needs=("ranges",), reads=_READS, columns=columns, by_step=False)(sum_of_style)


nvtx_pushpop_sum = _sum_of_style("nvtx_pushpop_sum", "NVTX push/pop range summary", "PushPop", "pushed and popped")
nvtx_startend_sum = _sum_of_style("nvtx_startend_sum", "NVTX start/end range summary", "StartEnd", "started and ended")


# Each range with its place in the stack of its thread.

_ADDED = {
    **dict.fromkeys(("duration_ns", "child_ns", "own_ns", "depth", "child_count", "parent_id"), pl.Int64),
    **dict.fromkeys(("stack", "name_tree"), pl.String),
}


def _of_thread(rows: pl.DataFrame) -> pl.DataFrame:
    start, end = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    nest = nest_of_ranges(start, end, rows["range_id"].to_numpy())
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
    reads=_READS,
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
    # Equal ranges have no place in a stack, nor have those inside them: they are not listed.
    view = frames.of_trace
    pushed = named_ranges(view, style="PushPop").sort("range_id").collect()
    parts = [_of_thread(rows) for rows in pushed.partition_by(THREAD, maintain_order=True)]
    nested = pl.concat([pushed.clear().with_columns(pl.lit(None, kind).alias(c) for c, kind in _ADDED.items()), *parts])
    stamped = on_source_clock(view, nested.lazy(), ("start_ns", "end_ns"))
    return with_runs(view, stamped.sort("run_id", "start_ns", "duration_ns", "range_id"))


# Launches beside the named ranges that hold them, thread by thread.


@dataclass(frozen=True)
class _ThreadWork:
    """One thread's ranges (in order of range_id) and its launches, as `sources` gives them."""

    ranges: pl.DataFrame
    launches: pl.DataFrame

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Rows of launches, and beside each the row of a range that holds the whole call; every pair once."""
        pieces = containing(
            self.ranges["start_ns"].to_numpy(),
            self.ranges["end_ns"].to_numpy(),
            self.launches["call_start_ns"].to_numpy(),
            self.launches["call_end_ns"].to_numpy(),
        )
        nothing = (np.empty(0, dtype=np.int64),) * 2
        inner, outer = zip(nothing, *pieces, strict=True)
        return np.concatenate(inner), np.concatenate(outer)

    def inside(self, launch_columns: list[str], range_columns: list[str]) -> pl.DataFrame:
        """One row a pair: these columns of the launch and of the range, and `row`, the range's own."""
        launch, outer = self.pairs
        held = self.launches.select(launch_columns)[launch].with_columns(pl.Series("row", outer))
        return held.hstack(self.ranges.select(range_columns)[outer]) if range_columns else held

    @property
    def outside(self) -> pl.DataFrame:
        """The launches in no range."""
        free = np.ones(self.launches.height, dtype=bool)
        free[self.pairs[0]] = False
        return self.launches.filter(pl.Series(free))


def _threads_with_launches(view: TraceView, launches: pl.LazyFrame) -> Iterator[_ThreadWork]:
    """Every thread that launched, in order; ranges that another thread closed hold nothing, as nsys has it."""
    closed = named_ranges(view).filter(pl.col("end_thread_id").is_null()).sort("range_id").collect()
    ranges = closed.partition_by(THREAD, as_dict=True, maintain_order=True)
    for key, rows in (
        launches.sort(THREAD, maintain_order=True)
        .collect()
        .partition_by(THREAD, as_dict=True, maintain_order=True)
        .items()
    ):
        yield _ThreadWork(ranges.get(key, closed.clear()), rows)


_KEYS = ["process_id", "thread_id", "range_name", "style", "name"]
_KERNEL = [*THREAD, "span_id", "name", "duration_ns"]
_RANGE = ["range_id", "range_name", "style"]


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
        _STYLE,
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
    # A kernel counts under every range around its call, and once more for a second call.
    view = frames.of_trace
    all_kernels = kernels(view).select(
        "run_id", "process_id", "correlation_id", "thread_id", "span_id", "name", "duration_ns"
    )
    launched = launches(view, all_kernels)
    parts = [_summary(_without_launch(all_kernels, launched).collect())]
    for thread in _threads_with_launches(view, launched):
        parts.append(_summary(thread.inside(_KERNEL, _RANGE)))
        parts.append(_summary(thread.outside.select(_KERNEL)))
    rows = (
        pl.concat(parts)
        .lazy()
        .sort("run_id", *_KEYS)
        .sort("range_name", "process_id", "thread_id", -pl.col("total_ns"), maintain_order=True)
    )
    return with_runs(view, rows)
