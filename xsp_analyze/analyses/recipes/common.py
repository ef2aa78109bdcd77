"""What several recipes of nsys share: times on the profiler's clock, files, statistics as pandas describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import deviation, name_column
from xsp_analyze.core import Column, Role
from xsp_analyze.formulas import ordered_mean, quotient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView


__all__ = ["FILE", "NCCL_DOMAIN", "closed_ranges", "described", "described_columns", "on_source_clock", "with_file"]

NCCL_DOMAIN = "NCCL"
FILE = name_column("file", "Name of the file, without its ending.", "File", role=Role.LABEL)


def on_source_clock(view: TraceView, rows: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """The rows with these times as the profiler stamped them."""
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    joined = rows.join(origins, on="run_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col(c) + pl.col("clock_origin_ns") for c in columns).drop("clock_origin_ns")


def with_file(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Adds `file`: what nsys calls a report, its file's name without the ending."""
    stem = pl.col("source_path").str.replace(r"(.)\.[^.]*$", "${1}").alias("file")
    return rows.join(
        view.timed_runs.scan("runs").select("run_id", stem), on="run_id", how="left", maintain_order="left"
    )


def closed_ranges(view: TraceView) -> pl.LazyFrame:
    """One row a named range that ended, in the order in which the file has them: its text, domain and times.

    Of a profile those of one level; see `TraceView.deepest`.

    Columns run_id, process_id, thread_id, text, domain, style, end_thread_id, start_ns, end_ns.
    """
    details = view.trace.scan("ranges").with_columns(pl.col("domain", "style").cast(pl.String))
    columns = ("span_id", "run_id", "process_id", "thread_id", "start_ns", "duration_ns")
    spans = view.own_runs.scan("spans").select(columns)
    joined = details.join(spans, on="span_id", maintain_order="left").filter(pl.col("duration_ns").is_not_null())
    return (
        view.deepest(joined.collect())
        .lazy()
        .sort("run_id", "range_id", "span_id", nulls_last=True)
        .select(
            "run_id",
            "process_id",
            "thread_id",
            "text",
            "domain",
            "style",
            "end_thread_id",
            "start_ns",
            (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
        )
    )


def described(rows: pl.LazyFrame, by: str) -> pl.LazyFrame:
    """Statistics of duration_ns by name: of each run, then over runs as `nsys recipe` puts several files together.

    Counts and sums add up; the deviation is the mean of the runs', the quartiles are the least first, the median
    of medians and the greatest third.
    """
    value = pl.col("duration_ns")
    one = rows.group_by("run_id", by).agg(
        pl.len().cast(pl.Int64).alias("count"),
        value.sum().alias("total_ns"),
        value.min().alias("min_ns"),
        value.max().alias("max_ns"),
        pl.when(pl.len() > 1).then(deviation(value)).alias("std_ns"),
        *(
            value.quantile(part, "linear").alias(name)
            for name, part in (("q1_ns", 0.25), ("median_ns", 0.5), ("q3_ns", 0.75))
        ),
    )
    several = one.group_by(by).agg(
        pl.col("count", "total_ns").sum(),
        pl.col("min_ns", "q1_ns").min(),
        pl.col("max_ns", "q3_ns").max(),
        pl.col("median_ns").median(),
        ordered_mean(pl.col("std_ns")),
    )
    return several.with_columns(quotient(pl.col("total_ns"), pl.col("count")).alias("mean_ns")).sort(by)


def described_columns(name: Column, what: str) -> tuple[Column, ...]:
    """Columns for `described`, headed as in `all_stats.parquet`."""
    integer, fractional = pl.Int64(), pl.Float64()
    spec = (
        ("mean_ns", fractional, "Mean", "Mean"),
        ("std_ns", fractional, "Std (approx)", "Sample standard deviation (mean of the runs'; null for a single one)"),
        ("min_ns", integer, "Min", "Smallest"),
        ("q1_ns", fractional, "Q1 (approx)", "First quartile (the least of the runs')"),
        ("median_ns", fractional, "Median (approx)", "Median (of the runs' medians)"),
        ("q3_ns", fractional, "Q3 (approx)", "Third quartile (the greatest of the runs')"),
        ("max_ns", integer, "Max", "Largest"),
        ("total_ns", integer, "Sum", "Sum"),
    )
    return (
        name,
        Column("count", pl.Int64(), f"How many there were of {what}.", header="Count"),
        *(
            Column(ours, dtype, f"{doc} of {what}.", "ns", header=theirs, decimals=1 if dtype.is_float() else None)
            for ours, dtype, theirs, doc in spec
        ),
    )
