"""NVTX ranges projected onto the device in `nsys stats`: from first start to last end of the work launched inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import (
    THREAD,
    containing,
    integer,
    name_column,
    named_ranges,
    nest_of_ranges,
    on_source_clock,
    spans_by_sort,
    spread,
    spread_columns,
    with_runs,
)
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, Role, analysis
from xsp_model.columns.arrays import distinct_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from xsp_analyze.analyses.nsys.sources import Nest
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["Calls", "envelopes", "nvtx_gpu_proj_sum", "nvtx_gpu_proj_trace"]

# Calls beside the device work that they launched, thread by thread: as arrays, as captures hold millions of both.

_PROCESS = ("run_id", "process_id")
_NEVER = np.iinfo(np.int64).max
_MAX_KEY = 1 << 40  # of processes and runs there are fewer than are left to 63 bits
_SPARSE = 4
_SMALL = 1 << 16  # a table of this many entries costs next to nothing


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one thread that launched work, in order of start: times, the work's extent, correlation ids."""

    start: Ints
    end: Ints
    work_start: Ints
    work_end: Ints
    correlation: Ints


def launching_calls(calls: pl.DataFrame, work: pl.DataFrame) -> Mapping[tuple[int | None, ...], Calls]:
    """Of every thread the calls that launched this work, by run, process and thread, in that order.

    Work is told by its process and correlation id; where runtime and driver both recorded its launch, both calls hold
    it. Columns of both as `spans_by_sort` gives them.
    """
    calls, work = (_with_thread(each) for each in (calls, work))
    have, want = _keys(calls, work)
    first, last = _extents(have, want, work)
    launched = first != _NEVER
    calls, first, last = calls.filter(pl.Series(launched)), first[launched], last[launched]
    start = calls["start_ns"].to_numpy()
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        calls, first, last, start = calls[order], first[order], last[order], start[order]
    end = start + calls["duration_ns"].fill_null(0).to_numpy()
    correlation = calls["correlation_id"].to_numpy()
    return {
        key: Calls(*(column[rows] for column in (start, end, first, last, correlation)))
        for key, rows in parts_of_threads(calls)
    }


def _with_thread(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that can be tied to others."""
    keys = [*_PROCESS, "correlation_id"]
    return rows.drop_nulls(keys) if any(rows[key].null_count() for key in keys) else rows


def parts_of_threads(rows: pl.DataFrame) -> Iterator[tuple[tuple[int | None, ...], Ints]]:
    """The threads that occur, unknown ones first, each with its rows in the order that they have."""
    group, counts, values = np.zeros(rows.height, dtype=np.int64), [], []
    for name in THREAD:
        distinct = rows[name].unique().sort(nulls_last=False)
        values.append(distinct.to_list())
        counts.append(len(distinct))
        group = group * len(distinct) + _ranks(rows[name], distinct)
    if int(np.prod(counts)) < np.iinfo(np.int16).max:
        group = group.astype(np.int16)  # which numpy sorts by counting
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for part in np.split(order, cuts) if len(order) else ():
        run, process, thread = np.unravel_index(int(group[part[0]]), counts)
        yield (values[0][run], values[1][process], values[2][thread]), part


def _ranks(values: pl.Series, distinct: pl.Series) -> Ints:
    """For each value its place among the known ones, of which null is the first."""
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int64)
    absent = distinct.null_count()
    ranks = np.searchsorted(distinct.drop_nulls().to_numpy(), values.fill_null(0).to_numpy()) + absent
    return np.where(values.is_null().to_numpy(), 0, ranks) if absent else ranks


def _keys(calls: pl.DataFrame, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """A number below four times their count for each call and piece of work, alike where what ties them is.

    That is run, process and correlation id; -1 for work with those of no call.
    """
    have, want = _spread(calls, work)
    low, high = int(have.min(initial=0)), int(have.max(initial=0))
    if high - low < _SPARSE * len(have) + _SMALL:
        inside = (want >= low) & (want <= high)
        return have - low, want - low if inside.all() else np.where(inside, want - low, -1)
    distinct = distinct_values(have)
    index = np.minimum(np.searchsorted(distinct, want), len(distinct) - 1)
    return np.searchsorted(distinct, have), np.where(distinct[index] == want, index, -1)


def _spread(calls: pl.DataFrame, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """Likewise, numbers of any size."""
    both = calls, work
    have, want = (each["correlation_id"].to_numpy() for each in both)
    if max(int(np.abs(each).max(initial=0)) for each in (have, want)) >= _MAX_KEY:
        distinct = distinct_values(np.concatenate([have, want]))
        have, want = (np.searchsorted(distinct, each) for each in (have, want))
    width = max(int(each.max(initial=0)) for each in (have, want)) + 1
    weight = 1
    for name in _PROCESS:
        distinct = pl.concat([each[name].unique() for each in both]).unique().sort().to_numpy()
        if len(distinct) > 1:
            keys = (np.searchsorted(distinct, each[name].to_numpy()) * weight * width for each in both)
            have, want = (each + code for each, code in zip((have, want), keys, strict=True))
        weight *= max(len(distinct), 1)
    return have, want


def _extents(have: Ints, want: Ints, work: pl.DataFrame) -> tuple[Ints, Ints]:
    """For each call the first start and last end of the work with its key; `_NEVER` where there is none."""
    start, duration = work["start_ns"], work["duration_ns"]
    begun = start.to_numpy()
    ended = begun + (duration.fill_null(0) if duration.null_count() else duration).to_numpy()
    present = want >= 0
    if not present.all():
        begun, ended, want = begun[present], ended[present], want[present]
    count = max(int(each.max(initial=-1)) for each in (have, want)) + 1
    first, last = np.full(count, _NEVER), np.full(count, -_NEVER)
    first[want], last[want] = begun, ended
    if not (np.array_equal(first[want], begun) and np.array_equal(last[want], ended)):  # several of one call
        np.minimum.at(first, want, begun)
        np.maximum.at(last, want, ended)
    return first[have], last[have]


# Ranges of one thread with the extent of the work that was launched inside each of them.


@dataclass(frozen=True, slots=True)
class Envelopes:
    """The rows of ranges that hold a launching call, the extent of its work, and how many launches there were.

    `outside`: which of the calls are in no range.
    """

    rows: Ints
    first: Ints
    last: Ints
    operations: Ints
    outside: Bools


def envelopes(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    """What ranges with these bounds hold; a call must be in a range as a whole, bounds included."""
    in_turn = bool((calls.end[1:] >= calls.end[:-1]).all())
    if in_turn and _all_differ(calls.correlation):
        return _of_stretches(start, end, calls)
    return _of_pairs(start, end, calls)


def _all_differ(numbers: Ints) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all()) or len(distinct_values(numbers)) == len(numbers)


def _of_stretches(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    """Where calls end in the order in which they start, those that a range holds follow one another."""
    low = np.searchsorted(calls.start, start, side="left")
    high = np.searchsorted(calls.end, end, side="right")
    rows = np.flatnonzero(low < high)
    low, high = low[rows], high[rows]
    bounds = np.stack((low, high), axis=1).reshape(-1)
    steps = np.bincount(low, minlength=len(calls.start) + 1) - np.bincount(high, minlength=len(calls.start) + 1)
    return Envelopes(
        rows,
        _over(np.minimum, calls.work_start, bounds),
        _over(np.maximum, calls.work_end, bounds),
        high - low,
        np.cumsum(steps)[:-1] == 0,
    )


def _over(extreme: np.ufunc, values: Ints, bounds: Ints) -> Ints:
    """The extreme over each stretch, whose bounds lie side by side."""
    if not len(bounds):
        return values[:0]
    closed = np.concatenate((values, values[-1:]))  # a stretch may end behind the last value
    return np.asarray(extreme.reduceat(closed, bounds)[::2], dtype=np.int64)


def _of_pairs(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    pieces = list(containing(start, end, calls.start, calls.end))
    nothing = np.empty(0, dtype=np.int64)
    inner = np.concatenate([nothing, *(pair[0] for pair in pieces)])
    outer = np.concatenate([nothing, *(pair[1] for pair in pieces)])
    limits = np.iinfo(np.int64)
    first, last = np.full(len(start), limits.max), np.full(len(start), limits.min)
    np.minimum.at(first, outer, calls.work_start[inner])
    np.maximum.at(last, outer, calls.work_end[inner])
    distinct, launch = np.unique(calls.correlation, return_inverse=True)
    launches = distinct_values(outer * max(len(distinct), 1) + launch[inner]) // max(len(distinct), 1)
    operations = np.bincount(launches, minlength=len(start))
    rows = np.flatnonzero(operations)
    outside = np.ones(len(calls.start), dtype=np.bool_)
    outside[inner] = False
    return Envelopes(rows, first[rows], last[rows], operations[rows], outside)


_PROJECTION: Mapping[str, pl.DataType] = {
    **dict.fromkeys((*THREAD, "range_id"), pl.Int64()),
    "range_name": pl.String(),
    "style": pl.String(),
    **dict.fromkeys(("start_ns", "end_ns", "projected_start_ns", "projected_end_ns"), pl.Int64()),
    **dict.fromkeys(("operation_count", "depth", "child_count", "parent_id"), pl.Int64()),
    "stack": pl.String(),
}
_LAUNCH = ("process_id", "correlation_id")
_READS: Mapping[str, Sequence[str]] = {
    "kernels": _LAUNCH,
    "copies": _LAUNCH,
    "calls": (*_LAUNCH, "thread_id"),
    "ranges": ("process_id", "thread_id"),
}
"""What of a capture a projection is made from; see `Analysis.reads`."""
_Thread = tuple[int | None, ...]


def _projected_ranges(view: TraceView, columns: Collection[str] = tuple(_PROJECTION)) -> pl.DataFrame:
    """One row a range that holds a launch, by run and range_id; before them a row for launches in none.

    Columns as in _PROJECTION, those asked for; start_ns and end_ns are the range's own, null in the row for launches in
    none. A graph's launch is one operation, however many kernels it starts.
    """
    spans = spans_by_sort(view)
    calls = launching_calls(spans.calls, spans.work)
    ranges = named_ranges(view, spans.others).collect()
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
        parts.append(_rows(own, ranges["range_id"], extents, nest_of_ranges(start, end, ids), columns))
        free[key] = extents.outside
    inside = _with_range_columns(parts, ranges)
    rows = pl.concat([_complete(part, columns) for part in (inside, _outside(calls, free))])
    by_number = {"run_id", "range_id"}.issubset(columns)
    return rows.sort("run_id", "range_id", nulls_last=False) if by_number else rows


def _complete(part: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    return part.select(
        (pl.col(name) if name in part.columns else pl.lit(None)).cast(_PROJECTION[name]).alias(name)
        for name in _PROJECTION
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


def _with_range_columns(parts: Sequence[pl.DataFrame], ranges: pl.DataFrame) -> pl.DataFrame:
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


_KEYS = ["range_name", "style"]
_TIMES = ("start_ns", "end_ns", "projected_start_ns", "projected_end_ns")
_COLUMNS = (*_KEYS, *_TIMES, "operation_count", "depth", "child_count")


def _mean(name: str, doc: str, header: str) -> Column:
    return Column(name, pl.Float64(), doc, header=header, decimals=1)


@analysis(
    "nvtx_gpu_proj_sum",
    "NVTX GPU projection summary",
    needs=("ranges", "runtime", "kernel"),
    reads=_READS,
    columns=(
        name_column("range_name", "Name of the range, after its domain if it has one.", "Range"),
        name_column("style", "PushPop, StartEnd or Annotation.", "Style"),
        integer("projected_ns", "Sum of the projected durations.", "Total Proj Time (ns)", unit="ns"),
        integer("range_ns", "Sum of the durations on the host.", "Total Range Time (ns)", unit="ns"),
        integer("count", "Ranges that launched device work.", "Range Instances"),
        *spread_columns("the projected durations", heading="Proj ", prefix="projected_"),
        integer("operation_count", "Launches inside that put work on a device.", "Total GPU Ops"),
        _mean("mean_operations", "Mean number of these.", "Avg GPU Ops"),
        _mean("mean_depth", "Mean number of ranges around.", "Avg Range Lvl"),
        _mean("mean_children", "Mean number of ranges directly inside that launched work.", "Avg Num Child"),
    ),
    by_step=False,
)
def nvtx_gpu_proj_sum(frames: StepView) -> pl.LazyFrame:
    """One row a range name and style, most projected time first, then by name."""
    rows = _projected_ranges(frames.of_trace, _COLUMNS).lazy().filter(pl.col("range_name").is_not_null())
    sums = (
        rows.with_columns((pl.col("projected_end_ns") - pl.col("projected_start_ns")).alias("projected"))
        .group_by(_KEYS)
        .agg(
            pl.col("projected").sum().alias("projected_ns"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("range_ns"),
            pl.len().cast(pl.Int64).alias("count"),
            *spread("projected", "projected_"),
            pl.col("operation_count").sum(),
            pl.col("operation_count").mean().alias("mean_operations"),
            pl.col("depth").mean().alias("mean_depth"),
            pl.col("child_count").mean().alias("mean_children"),
        )
    )
    return sums.sort(-pl.col("projected_ns"), *_KEYS)


@analysis(
    "nvtx_gpu_proj_trace",
    "NVTX GPU projection trace",
    needs=("ranges", "runtime", "kernel"),
    reads=_READS,
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
    view = frames.of_trace
    rows = _projected_ranges(view).lazy().with_columns(
        (pl.col("projected_end_ns") - pl.col("projected_start_ns")).alias("projected_ns"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
    )  # fmt: skip
    return with_runs(view, on_source_clock(view, rows, ("projected_start_ns", "start_ns")))
