"""Ranges projected onto the device: from the first start to the last end of the work launched inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys import sources
from xsp_analyze.analyses.nsys.calls import THREAD, launching_calls, parts_of_threads
from xsp_analyze.analyses.nsys.envelopes import envelopes
from xsp_analyze.analyses.nsys.nest import nested

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from xsp_analyze.analyses.nsys.calls import Calls
    from xsp_analyze.analyses.nsys.envelopes import Envelopes
    from xsp_analyze.analyses.nsys.nest import Nest
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Bools, Ints

__all__ = ["PROJECTION", "PROJECTION_READS", "projected"]

PROJECTION: Mapping[str, pl.DataType] = {
    **dict.fromkeys((*THREAD, "range_id"), pl.Int64()),
    "range_name": pl.String(),
    "style": pl.String(),
    **dict.fromkeys(("start_ns", "end_ns", "projected_start_ns", "projected_end_ns"), pl.Int64()),
    **dict.fromkeys(("operation_count", "depth", "child_count", "parent_id"), pl.Int64()),
    "stack": pl.String(),
}
_LAUNCH = ("process_id", "correlation_id")
PROJECTION_READS: Mapping[str, Sequence[str]] = {
    "kernels": _LAUNCH,
    "copies": _LAUNCH,
    "calls": (*_LAUNCH, "thread_id"),
    "ranges": ("process_id", "thread_id"),
}
"""What of a capture a projection is made from; see `Analysis.reads`."""

_Thread = tuple[int | None, ...]


def projected(view: TraceView, columns: Collection[str] = tuple(PROJECTION)) -> pl.DataFrame:
    """One row a range that holds a launch, by run and range_id; before them a row for launches in none.

    Columns as in PROJECTION, those asked for; start_ns and end_ns are the range's own, null in the row for launches in
    none. A graph's launch is one operation, however many kernels it starts.
    """
    spans = sources.sorted_out(view)
    calls = launching_calls(spans.calls, spans.work)
    ranges = sources.ranges(view, spans.others).collect()
    del spans
    if ranges["end_thread_id"].null_count() < ranges.height:
        ranges = ranges.filter(pl.col("end_thread_id").is_null())
    of_thread = dict(parts_of_threads(ranges.select(THREAD)))
    bounds = tuple(ranges[name].to_numpy() for name in ("start_ns", "end_ns", "range_id"))
    parts, free = [], {}
    for key, launched in calls.items():
        own = of_thread.get(key, np.empty(0, dtype=np.int64))
        start, end, ids = (each[own] for each in bounds)
        extents = envelopes(start, end, launched)
        parts.append(_rows(own, ranges["range_id"], extents, nested(start, end, ids), columns))
        free[key] = extents.outside
    inside = _named(parts, ranges)
    rows = pl.concat([_complete(part, columns) for part in (inside, _outside(calls, free))])
    by_number = {"run_id", "range_id"}.issubset(columns)
    return rows.sort("run_id", "range_id", nulls_last=False) if by_number else rows


def _complete(part: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    return part.select(
        (pl.col(name) if name in part.columns else pl.lit(None)).cast(PROJECTION[name]).alias(name)
        for name in PROJECTION
        if name in columns
    )


def _rows(own: Ints, ids: pl.Series, extents: Envelopes, nest: Nest, columns: Collection[str]) -> pl.DataFrame:
    """What is worked out of the ranges of one thread that hold launches; `at`: their rows among all ranges."""
    rows = extents.rows
    parent, rooted = nest.parent[rows], nest.rooted[rows]
    values = {
        "at": own[rows],
        "projected_start_ns": extents.first,
        "projected_end_ns": extents.last,
        "operation_count": extents.operations,
        "child_count": np.bincount(parent[parent >= 0], minlength=len(own))[rows],
    }
    depth = pl.Series("depth", nest.depth[rows])
    further = [depth if rooted.all() else depth.set(pl.Series(~rooted), None)]
    if "parent_id" in columns:  # where nsys finds no root it names no parent
        parent_rows = np.where(rooted & (parent >= 0), own[parent] if len(own) else parent, -1)
        further.append(ids.gather(pl.Series(parent_rows).replace(-1, None)).alias("parent_id"))
    if "stack" in columns:
        further.append(nest.stacks(ids.gather(own)).gather(rows).alias("stack"))
    return pl.DataFrame(values).with_columns(further)


def _named(parts: Sequence[pl.DataFrame], ranges: pl.DataFrame) -> pl.DataFrame:
    """The parts as one, beside what the ranges say of themselves."""
    if not parts:
        return ranges.clear()
    rows = pl.concat(parts)
    return rows.drop("at").hstack(ranges.drop("end_thread_id")[rows["at"]])


def _outside(calls: Mapping[_Thread, Calls], free: Mapping[_Thread, Bools]) -> pl.DataFrame:
    """One row a run for all launches in no range, under the thread of the one whose work ended last."""
    rows = [_free_calls(key, calls[key], free[key]) for key in calls]
    if not rows:
        return pl.DataFrame()
    last = pl.col("work_end").arg_max()
    return (
        pl.concat(rows)
        .group_by("run_id")
        .agg(
            pl.col("work_start").min().alias("projected_start_ns"),
            pl.col("work_end").max().alias("projected_end_ns"),
            pl.col("correlation").n_unique().alias("operation_count"),
            *(pl.col(each).get(last).alias(each) for each in THREAD if each != "run_id"),
            child_count=pl.lit(0),
        )
    )


def _free_calls(key: _Thread, calls: Calls, free: Bools) -> pl.DataFrame:
    times = {"work_start": calls.work_start[free], "work_end": calls.work_end[free]}
    thread = (pl.lit(value, pl.Int64).alias(name) for name, value in zip(THREAD, key, strict=True))
    return pl.DataFrame({**times, "correlation": calls.correlation[free]}).with_columns(thread)
