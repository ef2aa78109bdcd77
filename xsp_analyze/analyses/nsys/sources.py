"""Rows of a trace as the reports of nsys take them: kernels, copies, API calls, ranges and launches.

Of a profile, whose runs are of the same work, those of the runs that kernels are taken from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "IS_CALL",
    "THREAD",
    "WORK_KINDS",
    "SpansBySort",
    "api_calls",
    "call_times",
    "copies",
    "kernel_times",
    "kernels",
    "launches",
    "named_ranges",
    "on_source_clock",
    "printed_api_name",
    "spans_by_sort",
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
