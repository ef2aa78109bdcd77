"""Recipes that sum calls of MPI and NCCL, tell how regularly kernels come again, and find what holds up the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import (
    THREAD,
    WORK_KINDS,
    api_calls,
    bytes_column,
    containing,
    copies,
    deviation,
    integer,
    kernels,
    launches,
    name_column,
    on_source_clock,
)
from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.formulas import ordered_mean, quotient
from xsp_analyze.frames.host_ranges import library_calls
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "FILE",
    "base_name",
    "closed_ranges",
    "collective_range",
    "cuda_api_sync",
    "cuda_gpu_kern_pace",
    "cuda_memcpy_async",
    "cuda_memcpy_sync",
    "cuda_memset_sync",
    "mpi_sum",
    "nccl_gpu_proj_sum",
    "nccl_sum",
    "nvtx_gpu_proj_pace",
    "nvtx_pace",
    "pace",
    "pace_columns",
    "project",
    "short_name",
    "statistics_by_name",
    "statistics_columns",
    "with_file",
]

# What several recipes share: files, named ranges on the host and projected onto the device, NCCL's among them.

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


# How regularly something comes again: each occurrence with the time since the one before.
_GROUP = ("run_id", "name")


def pace(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row an occurrence (run_id, name, start_ns, end_ns), in the order given, by name and run."""
    stamped = on_source_clock(view, rows, ("start_ns", "end_ns"))
    previous = pl.col("end_ns").shift(1, fill_value=0).over(_GROUP)
    paced = stamped.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(_GROUP).alias("iteration"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        # The first one's is from the start of the capture, as in nsys.
        (pl.col("start_ns") - previous).alias("delta_ns"),
    )
    paced = paced.with_columns(
        pl.col("delta_ns").cum_sum().over(_GROUP).alias("delta_sum_ns"),
        pl.col("duration_ns").cum_sum().over(_GROUP).alias("duration_sum_ns"),
    )
    return with_file(view, paced).sort("name", "run_id", "iteration")


def pace_columns(what: str, *, device: bool = False) -> tuple[Column, ...]:
    """Columns for `pace`; the headings are the names of the recipe's `pace_*.parquet`."""
    where = "on the device" if device else "on the host"
    return (
        name_column("name", f"Name of the {what}.", "Name"),
        integer("run_id", "The run: the recipe's rank.", "Rank", role=Role.KEY),
        FILE,
        integer("iteration", "Index among the ranges of its name in the run, from 0.", "Iteration", role=Role.KEY),
        integer("start_ns", f"Its start {where}, on the profiler's own clock.", "start", unit="ns"),
        integer("end_ns", f"Its end {where}.", "end", unit="ns"),
        integer("duration_ns", "Its duration.", "duration", unit="ns"),
        integer(
            "delta_ns", "From the end of the one before to its start; the first: from the start of the capture.",
            "delta", unit="ns",
        ),
        integer("duration_sum_ns", "Sum of the durations so far.", "duration_accum", unit="ns"),
        integer("delta_sum_ns", "Sum of the deltas so far.", "delta_accum", unit="ns"),
    )  # fmt: skip


# The base name of a kernel: its function without type, namespaces, template arguments and parameters.
_OPEN, _CLOSE = "<([{", ">)]}"


def short_name(column: str) -> pl.Expr:
    """The base names of a column of names."""
    return pl.col(column).map_batches(_base_names, return_dtype=pl.String).alias("name")


def _base_names(names: pl.Series) -> pl.Series:
    kinds = names.unique()
    return names.replace_strict(kinds, [base_name(name) if name else name for name in kinds], return_dtype=pl.String)


def base_name(name: str) -> str:
    """The base name as nsys shortens it: `void at::f<(int)4>(int)` is `f`."""
    plain = _outside_brackets(name)
    return plain.rpartition("::")[2].split(" ")[-1].strip("*&") or name


def _outside_brackets(name: str) -> str:
    """What stands in no bracket, up to the parameters."""
    kept: list[str] = []
    depth = 0
    for position, character in enumerate(name):
        if character in _OPEN:
            if character == "(" and depth == 0 and kept and not name.startswith("(anonymous", position):
                break
            depth += 1
        elif character in _CLOSE and depth:
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip()


@analysis(
    "cuda_gpu_kern_pace",
    "Pace of kernels",
    needs=("kernels",),
    columns=pace_columns("kernel, without namespaces, template arguments and parameters", device=True),
    by_step=False,
)
def cuda_gpu_kern_pace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel, by name and run in order of start; the recipe gives those of one name."""
    view = frames.of_trace
    rows = kernels(view).sort("run_id", "start_ns", "span_id").select(
        "run_id", short_name("name"), "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )  # fmt: skip
    return pace(view, rows)


@analysis(
    "nvtx_pace",
    "Pace of named ranges",
    needs=("ranges",),
    columns=pace_columns("range, whatever its domain"),
    by_step=False,
)
def nvtx_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that ended, by name and run in the file's order; the recipe gives those of one name."""
    view = frames.of_trace
    return pace(view, closed_ranges(view).select("run_id", pl.col("text").alias("name"), "start_ns", "end_ns"))


@analysis(
    "nvtx_gpu_proj_pace",
    "Pace of named ranges on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=pace_columns("range, whatever its domain", device=True),
    by_step=False,
)
def nvtx_gpu_proj_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that launched work, by name and run in order of launch; the recipe gives those of one name."""
    view = frames.of_trace
    return pace(view, project(view, closed_ranges(view), WORK_KINDS).rename({"text": "name"}))


@analysis(
    "mpi_sum",
    "MPI calls",
    needs=("MPI",),
    columns=statistics_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def mpi_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function of MPI, by name; calls without duration are left out."""
    calls = library_calls(frames.of_trace, "MPI")
    return statistics_by_name(calls.select("run_id", "duration_ns", text=pl.col("name").cast(pl.String)), "text")


@analysis(
    "nccl_sum",
    "NCCL calls",
    needs=("ranges",),
    columns=statistics_columns(name_column("text", "Name of the call.", "Text"), "the durations of the calls"),
    by_step=False,
)
def nccl_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges, by name; ranges without duration are left out."""
    calls = closed_ranges(frames.of_trace).filter(collective_range())
    timed = calls.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return statistics_by_name(timed.filter(pl.col("duration_ns") > 0), "text")


@analysis(
    "nccl_gpu_proj_sum",
    "NCCL calls on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=statistics_columns(
        name_column("text", "Name of the call.", "Text"),
        "the times from the first start to the last end of the work launched in a call",
    ),
    by_step=False,
)
def nccl_gpu_proj_sum(frames: StepView) -> pl.LazyFrame:
    """One row a name of NCCL's ranges that launched work, by name."""
    view = frames.of_trace
    rows = project(view, closed_ranges(view).filter(collective_range()), WORK_KINDS)
    timed = rows.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    return statistics_by_name(timed.filter(pl.col("duration_ns") > 0), "text")


# Calls that hold up the host, as rules of `nsys analyze` and recipes find them: waits, copies and fills.


def _work_of_calls(view: TraceView, work: pl.LazyFrame, calls: pl.Expr) -> pl.LazyFrame:
    """The copies or fills whose call's name is such, longest first, times as the profiler stamped them."""
    launched = launches(view, work).filter(calls)
    stamped = on_source_clock(view, launched, ("start_ns",))
    nothing = pl.lit(None, dtype=pl.Int64).alias("green_context_id")
    return stamped.with_columns(nothing).sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id", "call_id")


def _synchronous(function: str) -> pl.Expr:
    """Whether the call is of these functions, and not of their asynchronous variants."""
    name = pl.col("call_name")
    return name.str.contains(f"(?i)^{function}") & ~name.str.contains("(?i)async")


def _timing(what: str) -> tuple[Column, ...]:
    """Columns for when the work ran."""
    return (
        integer("duration_ns", f"Duration of the {what} on the device.", "Duration (ns)", unit="ns"),
        integer("start_ns", "Its start, on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
    )


_LOCATION: tuple[Column, ...] = (
    bytes_column("bytes", "Bytes copied or filled.", "Bytes (MB)"),
    integer("process_id", "The process.", "PID", role=Role.KEY),
    integer("device_id", "The device.", "Device ID", role=Role.KEY),
    integer("context_id", "The context.", "Context ID", role=Role.LABEL),
    integer("green_context_id", "Not in our model, so always unknown.", "Green Context ID", role=Role.LABEL),
    integer("stream_id", "The stream.", "Stream ID", role=Role.KEY),
    name_column("call_name", "The call as recorded.", "API Name", role=Role.LABEL),
)

_COPY: tuple[Column, ...] = (
    *_timing("copy"),
    name_column("source_kind", "Memory read from.", "Src Kind", role=Role.LABEL),
    name_column("destination_kind", "Memory written to.", "Dst Kind", role=Role.LABEL),
    *_LOCATION,
)


@analysis(
    "cuda_api_sync",
    "Calls that wait for a device",
    needs=("runtime",),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=(
        integer("duration_ns", "Duration of the call.", "Duration (ns)", unit="ns"),
        integer("start_ns", "Its start, on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("thread_id", "The thread.", "TID", role=Role.KEY),
        name_column("name", "The call as recorded.", "API Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_api_sync(frames: StepView) -> pl.LazyFrame:
    """One row a call of cudaDeviceSynchronize or cudaStreamSynchronize, longest first."""
    view = frames.of_trace
    calls = api_calls(view).filter(pl.col("name").str.contains(r"(?i)^cuda(Device|Stream)Synchronize"))
    stamped = on_source_clock(view, calls, ("start_ns",))
    return stamped.sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id")


@analysis(
    "cuda_memcpy_async",
    "Asynchronous copies with pageable memory",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=_COPY,
    by_step=False,
)
def cuda_memcpy_async(frames: StepView) -> pl.LazyFrame:
    """One row a copy that was asked for asynchronously and reads or writes pageable host memory, longest first."""
    view = frames.of_trace
    pageable = pl.any_horizontal(pl.col("source_kind", "destination_kind") == "Pageable")
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, pageable)
    return _work_of_calls(view, moved, pl.col("call_name").str.contains(r"(?i)^cudaMemcpy.*Async"))


_SMALL_BYTES = 64_000  # the rule says 64 KB


@analysis(
    "cuda_memcpy_sync",
    "Synchronous copies",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=_COPY,
    by_step=False,
)
def cuda_memcpy_sync(frames: StepView) -> pl.LazyFrame:
    """One row a copy for which the host waited, copies of at most 64,000 bytes to a device left out; longest first.

    nsys also leaves out peer copies within one device, which our model does not tell from others.
    """
    view = frames.of_trace
    small = (pl.col("bytes") <= _SMALL_BYTES) & (pl.col("copy_kind") == "Host-to-Device")
    moved = copies(view).filter(pl.col("kind") == Kind.MEMCPY, ~small)
    return _work_of_calls(view, moved, _synchronous("cudaMemcpy"))


@analysis(
    "cuda_memset_sync",
    "Synchronous memsets",
    needs=("runtime", "copies"),
    key=(),  # a row is a call or an activity; coarse clocks, or ranks alike, put several at one start
    columns=(
        *_timing("fill"),
        name_column("destination_kind", "Memory filled: Pinned or Managed.", "Memory Kind", role=Role.LABEL),
        *_LOCATION,
    ),
    by_step=False,
)
def cuda_memset_sync(frames: StepView) -> pl.LazyFrame:
    """One row a fill of pinned or managed memory for which the host waited, longest first."""
    view = frames.of_trace
    filled = copies(view).filter(pl.col("kind") == Kind.MEMSET, pl.col("destination_kind").is_in(["Pinned", "Managed"]))
    return _work_of_calls(view, filled, _synchronous("cudaMemset"))
