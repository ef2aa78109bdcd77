"""What several recipes share: files, named ranges on the host and projected onto the device, NCCL's among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.nests import containing
from xsp_analyze.analyses.nsys.sources import THREAD, launches
from xsp_analyze.analyses.nsys.statistics import deviation, name_column
from xsp_analyze.core import Column, Role
from xsp_analyze.formulas import ordered_mean, quotient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Kind

__all__ = [
    "FILE",
    "closed_ranges",
    "collective_range",
    "project",
    "statistics_by_name",
    "statistics_columns",
    "with_file",
]

FILE = name_column("file", "Name of the file, without its ending.", "File", role=Role.LABEL)


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


def statistics_by_name(rows: pl.LazyFrame, by: str) -> pl.LazyFrame:
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


def statistics_columns(name: Column, what: str) -> tuple[Column, ...]:
    """Columns for `statistics_by_name`, headed as in `all_stats.parquet`."""
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


_SCHEMA = {"run_id": pl.Int64, "text": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def project(view: TraceView, ranges: pl.LazyFrame, kinds: Sequence[Kind]) -> pl.LazyFrame:
    """One row a range that holds a launch of such work, from the work's first start to its last end.

    This is the way of `nsys recipe`, which differs from that of `nsys stats`.

    A call must end before its range does, ranges of one thread must end on it, and a range stands where the first
    call in it does. `ranges` as `closed_ranges` gives them.
    """
    work = view.kernel_runs.scan("spans").filter(pl.col("kind").cast(pl.String).is_in([str(kind) for kind in kinds]))
    launched = launches(view, work).select(
        *THREAD,
        "call_start_ns",
        "call_end_ns",
        pl.col("start_ns").alias("work_start_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("work_end_ns"),
    )
    own = ranges.filter(pl.col("end_thread_id").is_null()).collect().partition_by(THREAD, as_dict=True)
    calls = launched.sort(*THREAD, "call_start_ns", maintain_order=True).collect()
    parts = [
        _envelopes(own[thread], rows)
        for thread, rows in calls.partition_by(THREAD, as_dict=True, maintain_order=True).items()
        if thread in own
    ]
    complete = pl.concat([pl.DataFrame(schema={**_SCHEMA, "first_call_ns": pl.Int64}), *parts])
    return complete.lazy().sort("run_id", "first_call_ns", maintain_order=True).select(*_SCHEMA)


def _envelopes(ranges: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    begun, ended = calls["call_start_ns"].to_numpy(), calls["call_end_ns"].to_numpy()
    # One nanosecond less: a call that ends with its range is not in it.
    pairs = list(containing(start, end - 1, begun, ended))
    inner = np.concatenate([np.empty(0, dtype=np.int64), *(pair[0] for pair in pairs)])
    outer = np.concatenate([np.empty(0, dtype=np.int64), *(pair[1] for pair in pairs)])
    held = calls[inner].with_columns(pl.Series("row", outer, dtype=pl.Int64))
    sums = held.group_by("row").agg(
        pl.col("work_start_ns").min().alias("start_ns"),
        pl.col("work_end_ns").max().alias("end_ns"),
        pl.col("call_start_ns").min().alias("first_call_ns"),
    )
    texts = ranges.select("run_id", "text").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    named = sums.join(texts, on="row").sort("first_call_ns", "row")
    return named.select(*_SCHEMA, "first_call_ns")


def collective_range() -> pl.Expr:
    """Of `closed_ranges`: those of NCCL's domain, which alone nsys looks for, and torch.profiler's annotations."""
    annotated = (pl.col("style") == "Annotation") & pl.col("text").str.starts_with("nccl:")
    return (pl.col("domain") == "NCCL").fill_null(value=False) | annotated
