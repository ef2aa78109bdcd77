"""Rows of a trace as the reports of nsys take them: kernels, copies, API calls, ranges and launches.

Of a profile, whose runs are of the same work, those of the runs that kernels are taken from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

from xsp_analyze.core import Column, Role
from xsp_analyze.formulas import quotient
from xsp_model import Kind, Level
from xsp_model.columns.tree import MAX_DEPTH, depths, innermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "IS_CALL",
    "SUMMED",
    "THREAD",
    "WORK_KINDS",
    "Nest",
    "SpansBySort",
    "api_calls",
    "bytes_column",
    "call_times",
    "containing",
    "copies",
    "deviation",
    "integer",
    "kernel_times",
    "kernels",
    "lanes",
    "launches",
    "name_column",
    "named_ranges",
    "nest_of_ranges",
    "on_source_clock",
    "plain_nest",
    "printed_api_name",
    "share",
    "spans_by_sort",
    "spread",
    "spread_columns",
    "summary",
    "tightest",
    "time_columns",
    "with_runs",
    "work_spans",
]

_LAUNCH = ("run_id", "process_id", "correlation_id")
THREAD = ("run_id", "process_id", "thread_id")
IS_CALL = (pl.col("level") == str(Level.RUNTIME)) & (pl.col("kind") == str(Kind.CALL))
"""Which spans are calls of the CUDA runtime or driver."""
WORK_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
"""Work as nsys reports it, which leaves out graphs replayed as a whole."""
_IS_WORK = pl.any_horizontal(pl.col("kind") == str(kind) for kind in WORK_KINDS)
_OF_ALL = ("run_id", "process_id", "start_ns", "duration_ns")


def _spans(view: TraceView, condition: pl.Expr) -> pl.LazyFrame:
    """Rows that are chosen while words are still codes, which is cheaper; then words are texts."""
    return work_spans(view).filter(condition).with_columns(pl.col("level", "kind", "name").cast(pl.String))


def work_spans(view: TraceView) -> pl.LazyFrame:
    """The rows of `spans` that a report is made from."""
    return view.kernel_runs.scan("spans")


class SpansBySort(NamedTuple):
    """Spans of a trace that reports are made from: work of devices, calls of the runtime or driver, and all others.

    Each with run_id, process_id, start_ns and duration_ns; work and calls with correlation_id, calls and others with
    thread_id, others with span_id.
    """

    work: pl.DataFrame
    calls: pl.DataFrame
    others: pl.DataFrame


def spans_by_sort(view: TraceView) -> SpansBySort:
    """All of them in one pass."""
    parts: tuple[list[pl.DataFrame], ...] = ([], [], [])
    of_call = (*_OF_ALL, "correlation_id")
    columns = (of_call, (*of_call, "thread_id"), (*_OF_ALL, "thread_id", "span_id"))
    for rows in view.kernel_runs.pieces("spans", (*of_call, "thread_id", "span_id", "level", "kind")):
        is_work, is_call = rows.select(_IS_WORK.alias("work"), IS_CALL.alias("call"))
        for part, kept, mask in zip(parts, columns, (is_work, is_call, ~(is_work | is_call)), strict=True):
            part.append(rows.select(kept).filter(mask))
    work, calls, others = (pl.concat(part) if part else pl.DataFrame() for part in parts)
    return SpansBySort(work, calls, others)


def on_source_clock(view: TraceView, rows: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """The rows with these times as the profiler stamped them."""
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    joined = rows.join(origins, on="run_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col(c) + pl.col("clock_origin_ns") for c in columns).drop("clock_origin_ns")


def kernel_times(view: TraceView) -> pl.LazyFrame:
    """One row a kernel: name, a word, and duration_ns."""
    return work_spans(view).filter(pl.col("kind") == str(Kind.KERNEL)).select("name", "duration_ns")


def call_times(view: TraceView) -> pl.LazyFrame:
    """Likewise of the calls of the CUDA runtime or driver."""
    return work_spans(view).filter(IS_CALL).select("name", "duration_ns")


def kernels(view: TraceView) -> pl.LazyFrame:
    """One row a kernel, its launch geometry beside it."""
    spans = _spans(view, pl.col("kind") == str(Kind.KERNEL))
    return spans.join(view.trace.scan("kernels"), on="span_id", how="left", maintain_order="left")


def copies(view: TraceView) -> pl.LazyFrame:
    """One row a copy or memset, named `[CUDA memcpy Host-to-Device]` or `[CUDA memset]`, with its bytes."""
    spans = _spans(view, (pl.col("kind") == str(Kind.MEMCPY)) | (pl.col("kind") == str(Kind.MEMSET)))
    labels = ("copy_kind", "source_kind", "destination_kind")
    details = view.trace.scan("copies").with_columns(pl.col(labels).cast(pl.String))
    operation = (
        pl.when(pl.col("kind") == Kind.MEMSET)
        .then(pl.lit("[CUDA memset]"))
        .otherwise(pl.format("[CUDA memcpy {}]", pl.col("copy_kind").fill_null("Unknown")))
    )
    joined = spans.join(details, on="span_id", how="left", maintain_order="left")
    return joined.with_columns(operation.alias("operation"))


def api_calls(view: TraceView) -> pl.LazyFrame:
    """One row a call of the CUDA runtime or driver, `name` as recorded."""
    return _spans(view, IS_CALL)


def printed_api_name(name: str = "name") -> pl.Expr:
    """The name as nsys 2023.4 prints it: `_v7000` goes; `_v11060`, being longer, stays."""
    return pl.col(name).str.replace(r"_v.{4}$", "")


def launches(view: TraceView, work: pl.LazyFrame) -> pl.LazyFrame:
    """One row an activity and call that launched it (two where runtime and driver were both recorded).

    `work` is rows of `spans`; the call's columns are call_name, thread_id, call_start_ns and call_end_ns.
    """
    calls = api_calls(view).select(
        *_LAUNCH,
        "thread_id",
        pl.col("span_id").alias("call_id"),
        pl.col("name").alias("call_name"),
        pl.col("start_ns").alias("call_start_ns"),
        (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).alias("call_end_ns"),
    )
    return work.drop("thread_id").join(calls, on=_LAUNCH, how="inner", maintain_order="left_right")


def _numbers(ranges_of: pl.DataFrame) -> pl.Series:
    """The source's numbers, or where there is none that in the order of spans; that of all where two have the same."""
    order = pl.col("span_id").rank("ordinal").over("run_id").cast(pl.Int64)
    own = ranges_of.select("run_id", range_id=pl.coalesce("range_id", order))
    is_rising = bool((own["range_id"].diff().drop_nulls() > 0).all())
    if not is_rising and own.is_duplicated().any():
        return ranges_of.select(order.alias("range_id")).to_series()
    return own["range_id"]


def named_ranges(view: TraceView, others: pl.DataFrame | None = None, *, style: str | None = None) -> pl.LazyFrame:
    """One row a named range: range_name (`domain:text`), style, and times; one never closed ends with the last.

    `others`: as `spans_by_sort` gives them, if they are at hand; `style`: of which alone ranges are taken.
    """
    details = view.trace.frame("ranges").with_columns(pl.col("domain", "style").cast(pl.String))
    details = details if style is None else details.filter(pl.col("style") == style)
    columns = ("run_id", "process_id", "thread_id", "start_ns", "duration_ns")
    if others is None:
        others = work_spans(view).filter(~(IS_CALL | _IS_WORK)).select("span_id", *columns).collect()
    spans = others.select("span_id", *columns)
    if len(details) != len(spans) or not (details["span_id"] == spans["span_id"]).all():
        spans = details.select("span_id").join(spans, on="span_id", maintain_order="left")
        details = details.join(spans.select("span_id"), on="span_id", how="semi", maintain_order="left")
    ranges_of = details.drop("span_id").hstack(spans)
    end = pl.col("start_ns") + pl.col("duration_ns")
    if ranges_of["duration_ns"].null_count():
        end = end.fill_null(pl.max_horizontal(pl.col("start_ns").max(), end.max()).over("run_id"))
    name = pl.col("text")
    if ranges_of["domain"].null_count() < ranges_of.height:
        name = pl.when(pl.col("domain").is_null()).then(name).otherwise(pl.col("domain") + ":" + name)
    return ranges_of.lazy().select(
        "run_id",
        "process_id",
        "thread_id",
        "start_ns",
        end.alias("end_ns"),
        _numbers(ranges_of),
        name.alias("range_name"),
        "style",
        "end_thread_id",
    )


# Which ranges of a thread hold which stretches, and the nest of ranges as nsys tells it; no join over all pairs.


def lanes(start: Ints, end: Ints) -> list[Ints]:
    """The intervals of one thread dealt out to as few lanes as can be, those of a lane not overlapping.

    Each lane is the positions of its intervals in order of start; there are as many as intervals were ever open at
    once. Takes n log n, however the intervals nest or overlap.
    """
    order = np.lexsort((-end, start))
    begun = start[order]
    over = np.maximum(end[order], begun + 1)  # one that is empty takes up its instant
    by_end = np.argsort(over, kind="stable")
    ended = np.searchsorted(over[by_end], begun, side="right")
    number = np.arange(len(order))
    # Lanes wait in a queue in the order in which they fell free, and an interval takes the first, if there is one.
    # `taken`, how many were taken before each, is min(taken + 1, ended) from one to the next: a running minimum.
    taken = number + np.minimum.accumulate(np.concatenate(([0], ended - number - 1)))[:-1]
    before = np.where(taken < ended, by_end[np.minimum(taken, max(len(order) - 1, 0))], number)
    first = _first(before)
    together = np.argsort(first, kind="stable")
    cuts = np.flatnonzero(np.diff(first[together])) + 1
    return np.split(order[together], cuts)


def _first(before: Ints) -> Ints:
    """The head of each one's chain, by following twice as many links each time."""
    while True:
        further = before[before]
        if np.array_equal(further, before):
            return before
        before = further


def containing(start: Ints, end: Ints, inner_start: Ints, inner_end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Positions of inner stretches with positions of the intervals that hold all of them, lane by lane.

    Every pair comes exactly once; bounds are inclusive.
    """
    for lane in lanes(start, end) if len(start) else ():
        index = np.searchsorted(start[lane], inner_start, side="right") - 1
        outer = lane[np.maximum(index, 0)]
        inside = np.flatnonzero((index >= 0) & (end[outer] >= inner_end))
        yield inside, outer[inside]
        # An empty stretch where one interval ends and the next starts is in both.
        outer = lane[np.maximum(index - 1, 0)]
        inside = np.flatnonzero((index >= 1) & (end[outer] == inner_start) & (inner_start == inner_end))
        yield inside, outer[inside]


def tightest(start: Ints, end: Ints) -> Ints:
    """For each interval the shortest other one that contains it, the first of several; -1: none does.

    Two equal intervals contain each other, so each is the other's.
    """
    best = np.full(len(start), -1, dtype=np.int64)
    for inner, outer in containing(start, end, start, end):
        other = inner != outer
        i, o = inner[other], outer[other]
        so_far = best[i]
        length, shortest = end[o] - start[o], end[so_far] - start[so_far]
        better = (so_far < 0) | (length < shortest) | ((length == shortest) & (o < so_far))
        best[i[better]] = o[better]
    return best


def plain_nest(start: Ints, end: Ints) -> tuple[Ints, Ints] | None:
    """For each interval the tightest other one that contains it (-1: none) and how many do; None where that is not so.

    Plain nests alone: none is empty, no two are equal, and those that share time contain one another.
    """
    if (end <= start).any():
        return None
    order = np.argsort(start, kind="stable")
    if (start[order][1:] == start[order][:-1]).any():
        order = np.lexsort((-end, start))
    begun, over = start[order], end[order]
    depth = np.arange(len(order)) - np.searchsorted(np.sort(over), begun, side="right")  # those still open
    above = _one_up(depth)
    inner = np.flatnonzero(depth > 0)
    outer = above[inner]
    held = (over[inner] <= over[outer]) & ~((over[inner] == over[outer]) & (begun[inner] == begun[outer]))
    if (outer < 0).any() or not held.all():
        return None
    parent, depths = np.full(len(order), -1, dtype=np.int64), np.empty(len(order), dtype=np.int64)
    parent[order[inner]], depths[order] = order[outer], depth
    return parent, depths


def _one_up(depth: Ints) -> Ints:
    """For each place the last one before it that is one less deep, or -1."""
    deepest = int(depth.max(initial=0))
    small = depth.astype(np.int16) if deepest < np.iinfo(np.int16).max else depth  # which numpy sorts by counting
    order = np.argsort(small, kind="stable")
    cuts = np.searchsorted(depth[order], np.arange(deepest + 2))
    above = np.full(len(depth), -1, dtype=np.int64)
    for level in range(1, deepest + 1):
        outer, inner = order[cuts[level - 1] : cuts[level]], order[cuts[level] : cuts[level + 1]]
        at = np.searchsorted(outer, inner) - 1
        above[inner] = np.where(at >= 0, outer[np.maximum(at, 0)], -1) if len(outer) else -1
    return above


@dataclass(frozen=True, slots=True)
class Nest:
    """For each range the row of its parent (-1: none), its depth, and whether that is known.

    A range's parent is the shortest that contains it. Equal ranges contain each other and so have no root: their depth
    is unknown, and that of all inside them, and nsys prints them like that.
    """

    parent: Ints
    depth: Ints
    rooted: Bools

    def stacks(self, ids: pl.Series) -> pl.Series:
        """The way down to each, `:2:3:5`, by ids from the outermost to its own.

        Null where it has no root, and for one in MAX_DEPTH others: all ways grow with the square of the depth.
        """
        stacks = _stacks(ids, np.where(_twins(self.parent), -1, self.parent), self.depth)
        return stacks.to_frame().select(pl.when(pl.Series(self.rooted)).then("stack")).to_series()


def nest_of_ranges(start: Ints, end: Ints, ids: Ints) -> Nest:
    """The nest of ranges with these bounds; of several that are as short, the one of the least id is the parent."""
    plain = plain_nest(start, end)
    if plain is not None:
        return Nest(*plain, np.ones(len(start), dtype=np.bool_))
    order = np.argsort(ids, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    tightest_of = tightest(start[order], end[order])
    parent = np.where(tightest_of >= 0, order[tightest_of], -1)[rank]
    twin = _twins(parent)
    below_roots = np.where(twin, -1, parent)
    return Nest(parent, depths(below_roots), innermost(below_roots, twin) < 0)


def _twins(parent: Ints) -> Bools:
    """The ranges that are their parent's parent, which two equal ones are of each other."""
    grand = np.where(parent >= 0, parent[parent], -1)
    return np.equal(grand, np.arange(len(parent)))


def _stacks(ids: pl.Series, parent: Ints, depth: Ints) -> pl.Series:
    own = (":" + ids.cast(pl.String)).alias("stack")
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(min(int(depth.max(initial=0)) + 1, MAX_DEPTH) + 1))
    position = np.argsort(order, kind="stable")
    levels: list[pl.Series] = []
    for level, (first, end) in enumerate(pairwise(edges.tolist())):
        here = order[first:end]
        outer = levels[-1].gather(position[parent[here]] - edges[level - 1]) if level else ""
        levels.append(outer + own.gather(here))
    levels.append(own.clear(len(order) - int(edges[-1])))
    return pl.concat(levels).gather(position).alias("stack")


# The statistics that every summary of `nsys stats` prints, and the columns they stand in.

SUMMED = ("share", "total_ns", "count")
"""Columns of `summary` that add up over its rows."""
_SPREAD = (
    ("mean", "Avg", pl.Float64(), "Mean"),
    ("median", "Med", pl.Float64(), "Median"),
    ("min", "Min", pl.Int64(), "Smallest"),
    ("max", "Max", pl.Int64(), "Largest"),
    ("std", "StdDev", pl.Float64(), "Sample standard deviation (0 for a single one)"),
)


def with_runs(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows, with their run where the trace holds several: nsys writes a report of each file alone."""
    return rows if len(view.timed_runs) > 1 else rows.drop("run_id")


def spread(value: str, prefix: str = "") -> list[pl.Expr]:
    """Mean, median, least, greatest and sample deviation of a column, for `agg`."""
    column = pl.col(value)
    return [
        column.mean().alias(f"{prefix}mean_ns"),
        column.median().alias(f"{prefix}median_ns"),
        column.min().alias(f"{prefix}min_ns"),
        column.max().alias(f"{prefix}max_ns"),
        deviation(column).alias(f"{prefix}std_ns"),
    ]


def deviation(value: pl.Expr) -> pl.Expr:
    """The sample standard deviation of a column of integers; 0 of a single one or none.

    From integer sums, which are the same in whatever order threads add them: polars' own `std` differs in its last
    digit from run to run. 128 bits hold them while the values' sum stays below 1.3e19 (400 years of ns).
    """
    count, wide = value.count().cast(pl.Int128), value.cast(pl.Int128)
    total = wide.sum()
    squares = (count * (wide * wide).sum() - total * total).cast(pl.Float64)
    pairs = value.count().cast(pl.Float64) * (value.count().cast(pl.Float64) - 1)
    return pl.when(pairs > 0).then(quotient(squares, pairs).sqrt()).otherwise(0.0)


def share() -> pl.Expr:
    """Each row's part of all rows' total, 0..1; null where that is nothing."""
    total = pl.col("total_ns").sum()
    return pl.when(total != 0).then(quotient(pl.col("total_ns"), total)).alias("share")


def summary(rows: pl.LazyFrame, by: Sequence[str], value: str = "duration_ns") -> pl.LazyFrame:
    """One row a group: share, total_ns, count and the spread; groups in order of their keys, words being texts."""
    grouped = rows.group_by(by).agg(pl.col(value).sum().alias("total_ns"), pl.len().alias("count"), *spread(value))
    return (
        grouped.with_columns(cs.categorical().cast(pl.String))
        .sort(by)
        .with_columns(share(), pl.col("count").cast(pl.Int64))
    )


def spread_columns(what: str, *, heading: str = "", prefix: str = "") -> tuple[Column, ...]:
    """Columns for `spread`, headed as `Avg (ns)` with `heading` before."""
    return tuple(
        Column(
            f"{prefix}{ours}_ns",
            dtype,
            f"{doc} of {what}.",
            "ns",
            header=f"{heading}{theirs} (ns)",
            decimals=1 if dtype.is_float() else None,
        )
        for ours, theirs, dtype, doc in _SPREAD
    )


def time_columns(what: str, count_header: str) -> tuple[Column, ...]:
    """Columns for `summary` of durations, as `nsys stats` orders and heads them."""
    return (
        Column(
            "share",
            pl.Float64(),
            "Part of the sum over the rows listed, 0 to 1.",
            "share",
            header="Time (%)",
            decimals=1,
        ),
        Column("total_ns", pl.Int64(), f"Sum of {what}.", "ns", header="Total Time (ns)"),
        integer("count", "How many there were.", count_header),
        *spread_columns(what),
    )


def integer(name: str, doc: str, header: str, *, role: Role = Role.MEASURE, unit: str = "") -> Column:
    """A column of whole numbers."""
    return Column(name, pl.Int64(), doc, unit, role, header)


def bytes_column(name: str, doc: str, header: str) -> Column:
    """A column of whole bytes, which nsys prints in MB."""
    return Column(name, pl.Int64(), doc, "byte", header=header, decimals=3)


def name_column(name: str, doc: str, header: str, *, role: Role = Role.KEY) -> Column:
    """A column of texts."""
    return Column(name, pl.String(), doc, role=role, header=header)
