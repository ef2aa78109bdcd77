"""CUDA in `nsys stats`: summaries of kernels, copies and calls, and the traces of work and of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import (
    SUMMED,
    bytes_column,
    call_times,
    copies,
    deviation,
    integer,
    kernel_times,
    kernels,
    launches,
    name_column,
    on_source_clock,
    printed_api_name,
    spread,
    spread_columns,
    summary,
    time_columns,
    with_runs,
)
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, Role, analysis
from xsp_analyze.needs import AnyOf
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "OPERATION_COLUMNS",
    "cuda_api_gpu_sum",
    "cuda_api_sum",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_sum",
    "cuda_kern_exec_trace",
    "device_operations",
    "extents",
    "sums_by_operation",
]


@analysis(
    "cuda_gpu_kern_sum",
    "CUDA GPU kernel summary",
    needs=("kernels",),
    additive=SUMMED,
    reads={"kernels": ("name",)},
    columns=(
        *time_columns("the durations of the kernels", "Instances"),
        name_column("name", "Name of the kernel.", "Name"),
    ),
    by_step=False,
)
def cuda_gpu_kern_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name, most total time first, then fewest instances, then by name."""
    return summary(kernel_times(frames.of_trace), ["name"]).sort(
        -pl.col("total_ns"), "count", "name", maintain_order=True
    )


_SIZES = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
_WIDTH = 4


def extents(what: str) -> pl.Expr:
    """The three sizes as nsys prints them, each right-aligned to four characters."""
    padded = [pl.col(f"{what}_{axis}").cast(pl.String).str.pad_start(_WIDTH) for axis in "xyz"]
    return pl.concat_str(padded, separator=" ").alias(what)


@analysis(
    "cuda_gpu_kern_gb_sum",
    "CUDA GPU kernel summary by grid and block",
    needs=("kernels",),
    additive=SUMMED,
    columns=(
        *time_columns("the durations of the kernels", "Instances"),
        name_column("grid", "Grid size along x, y and z.", "GridXYZ"),
        name_column("block", "Block size along x, y and z.", "BlockXYZ"),
        name_column("name", "Name of the kernel.", "Name"),
    ),
    by_step=False,
)
def cuda_gpu_kern_gb_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel name, grid and block; most total time first, then fewest instances, then by name."""
    rows = summary(kernels(frames.of_trace), ["name", *_SIZES])
    return (
        rows.with_columns(pl.col(_SIZES).fill_null(0))
        .with_columns(extents("grid"), extents("block"))
        .sort(-pl.col("total_ns"), "count", "name", maintain_order=True)
        .drop(_SIZES)
    )


@analysis(
    "cuda_api_sum",
    "CUDA API summary",
    needs=("runtime",),
    key=(),  # versions of a function, which the name as printed does not tell apart
    additive=SUMMED,
    reads={"calls": ("name",)},
    columns=(
        *time_columns("the durations of the calls", "Num Calls"),
        name_column("name", "Name of the function; versions of it are rows of their own.", "Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_api_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function, most total time first, then by its name as recorded."""
    # Calls are told apart by the name as recorded, of which less is printed.
    rows = summary(call_times(frames.of_trace), ["name"]).sort(-pl.col("total_ns"), maintain_order=True)
    return rows.with_columns(printed_api_name())


@analysis(
    "cuda_gpu_mem_time_sum",
    "CUDA GPU memory operations by time",
    needs=("copies",),
    additive=SUMMED,
    reads={"copies": ("name",)},
    columns=(
        *time_columns("the durations of the operations", "Count"),
        name_column("operation", "Kind of copy, or memset.", "Operation"),
    ),
    by_step=False,
)
def cuda_gpu_mem_time_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kind of copy or memset, most total time first, then by name."""
    return summary(copies(frames.of_trace), ["operation"]).sort(-pl.col("total_ns"), maintain_order=True)


def _size(name: str, dtype: pl.DataType, doc: str, header: str) -> Column:
    return Column(f"{name}_bytes", dtype, doc, "byte", header=f"{header} (MB)", decimals=3)


@analysis(
    "cuda_gpu_mem_size_sum",
    "CUDA GPU memory operations by size",
    needs=("copies",),
    additive=("total_bytes", "count"),
    reads={"copies": ("name",)},
    columns=(
        _size("total", pl.Int64(), "Sum of the bytes copied or filled.", "Total"),
        integer("count", "How many there were.", "Count"),
        _size("mean", pl.Float64(), "Mean size.", "Avg"),
        _size("median", pl.Float64(), "Median size.", "Med"),
        _size("min", pl.Int64(), "Smallest size.", "Min"),
        _size("max", pl.Int64(), "Largest size.", "Max"),
        _size("std", pl.Float64(), "Sample standard deviation of the sizes (0 for a single one).", "StdDev"),
        name_column("operation", "Kind of copy, or memset.", "Operation"),
    ),
    by_step=False,
)
def cuda_gpu_mem_size_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kind of copy or memset, most bytes first, then by name."""
    size = pl.col("bytes")
    rows = (
        copies(frames.of_trace)
        .group_by("operation")
        .agg(
            size.sum().alias("total_bytes"),
            pl.len().cast(pl.Int64).alias("count"),
            size.mean().alias("mean_bytes"),
            size.median().alias("median_bytes"),
            size.min().alias("min_bytes"),
            size.max().alias("max_bytes"),
            deviation(size).alias("std_bytes"),
        )
    )
    return rows.sort(-pl.col("total_bytes"), "operation")


_KERNEL, _MEMORY = "CUDA_KERNEL", "MEMORY_OPER"
OPERATION_COLUMNS = (
    name_column("category", "CUDA_KERNEL, MEMORY_OPER or CUDA_API.", "Category", role=Role.LABEL),
    name_column("operation", "Name of the kernel or function, or kind of copy, or memset.", "Operation"),
)


def device_operations(view: TraceView) -> pl.LazyFrame:
    """One row an operation: its name, category and duration_ns."""
    worked = kernel_times(view).select(pl.col("name").cast(pl.String).alias("operation"), "duration_ns")
    moved = copies(view).select("operation", "duration_ns")
    return pl.concat(
        [worked.with_columns(category=pl.lit(_KERNEL)), moved.with_columns(category=pl.lit(_MEMORY))],
    )


def sums_by_operation(operations: pl.LazyFrame) -> pl.LazyFrame:
    """One row a name, as nsys has it: one that two categories share stands under one of them."""
    of_name = operations.group_by("operation").agg(pl.col("category").min())
    rows = summary(operations, ["operation"]).join(of_name, on="operation", how="left", maintain_order="left")
    return rows.sort(-pl.col("total_ns"), maintain_order=True)


@analysis(
    "cuda_gpu_sum",
    "CUDA GPU summary",
    needs=(AnyOf("kernels", "copies"),),
    additive=SUMMED,
    reads={"kernels": ("name",), "copies": ("name",)},
    columns=(*time_columns("the durations of the operations", "Instances"), *OPERATION_COLUMNS),
    by_step=False,
)
def cuda_gpu_sum(frames: StepView) -> pl.LazyFrame:
    """One row a kernel's name or kind of copy, or memset, most total time first, then by name."""
    return sums_by_operation(device_operations(frames.of_trace))


@analysis(
    "cuda_api_gpu_sum",
    "CUDA summary",
    needs=(AnyOf("kernels", "copies", "runtime"),),
    additive=SUMMED,
    reads={"kernels": ("name",), "copies": ("name",), "calls": ("name",)},
    columns=(*time_columns("the durations of the calls and operations", "Instances"), *OPERATION_COLUMNS),
    by_step=False,
)
def cuda_api_gpu_sum(frames: StepView) -> pl.LazyFrame:
    """One row a function, kernel's name or kind of copy, or memset, most total time first, then by name."""
    called = call_times(frames.of_trace).with_columns(pl.col("name").cast(pl.String))
    named = called.select(printed_api_name().alias("operation"), "duration_ns", category=pl.lit("CUDA_API"))
    return sums_by_operation(pl.concat([device_operations(frames.of_trace), named]))


_NS_PER_S = 1_000_000_000
_ORDER = {str(kind): rank for rank, kind in enumerate((Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))}


def _where(name: str, of_memset: pl.Expr) -> tuple[pl.Expr]:
    return (pl.when(pl.col("kind") == Kind.MEMSET).then(of_memset).otherwise(pl.col(name)).alias(name),)


def _positive(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(pl.col(name))


def _with_device(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    devices = view.timed_runs.scan("devices").select(
        "run_id", "device_id", "process_id", pl.col("name").alias("device_name")
    )
    own = devices.filter(pl.col("process_id").is_not_null())
    common = devices.filter(pl.col("process_id").is_null()).drop("process_id").unique(["run_id", "device_id"])
    rows = rows.join(own, on=["run_id", "device_id", "process_id"], how="left", maintain_order="left")
    rows = rows.join(common, on=["run_id", "device_id"], how="left", maintain_order="left", suffix="_common")
    name = pl.coalesce("device_name", "device_name_common", pl.lit(""))
    return rows.with_columns(
        pl.format("{} ({})", name, "device_id").alias("device"),
        pl.col("correlation_id").fill_null(0),
        pl.lit(None, dtype=pl.Int64).alias("green_context_id"),
    )


@analysis(
    "cuda_gpu_trace",
    "CUDA GPU trace",
    needs=("kernel",),
    key=(),  # rounded clocks put work of one name and stream at one start
    additive=("duration_ns", "bytes"),
    columns=(
        RUN,
        integer("start_ns", "Start on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
        integer("duration_ns", "Duration.", "Duration (ns)", unit="ns"),
        integer("correlation_id", "Ties it to its launch; 0: none.", "CorrId", role=Role.LABEL),
        *(
            integer(
                f"{what}_{axis}", f"{what.capitalize()} size along {axis}.", f"{what[0].upper()}{short}{axis.upper()}"
            )
            for what, short in (("grid", "rd"), ("block", "lk"))
            for axis in "xyz"
        ),
        integer("registers_per_thread", "Registers each thread used.", "Reg/Trd"),
        bytes_column("static_shared_bytes", "Static shared memory per block.", "StcSMem (MB)"),
        bytes_column("dynamic_shared_bytes", "Dynamic shared memory per block.", "DymSMem (MB)"),
        bytes_column("bytes", "Bytes copied or filled.", "Bytes (MB)"),
        Column("byte_per_s", pl.Int64(), "Bytes per second.", "byte/s", header="Throughput (MB/s)", decimals=3),
        name_column("source_kind", "Memory read from; for a memset, memory filled.", "SrcMemKd", role=Role.LABEL),
        name_column("destination_kind", "Memory copied to.", "DstMemKd", role=Role.LABEL),
        name_column("device", "Name of the device and its number.", "Device"),
        integer("context_id", "The device context.", "Ctx", role=Role.KEY),
        integer(
            "green_context_id", "The green context; not in our model, so always unknown.", "GreenCtx", role=Role.LABEL
        ),
        integer("stream_id", "The stream.", "Strm", role=Role.KEY),
        name_column("name", "Name of the kernel, copy or memset.", "Name"),
    ),
    by_step=False,
)
def cuda_gpu_trace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel, copy or memset, in order of start; at the same time kernels, then copies, then memsets."""
    view = frames.of_trace
    moved = copies(view).with_columns(
        pl.col("operation").alias("name"),
        # nsys puts the memory that a memset filled under the source.
        *_where("source_kind", pl.coalesce("source_kind", "destination_kind")),
        *_where("destination_kind", pl.lit(None, dtype=pl.String)),
        # In whole bytes per second and byte, as nsys computes it.
        (pl.col("bytes") * (_NS_PER_S // _positive("duration_ns"))).alias("byte_per_s"),
    )
    rows = pl.concat([kernels(view), moved], how="diagonal_relaxed")
    rows = _with_device(view, on_source_clock(view, rows, ("start_ns",))).sort(
        "start_ns", pl.col("kind").replace_strict(_ORDER, return_dtype=pl.Int64), "span_id"
    )
    return with_runs(view, rows)


_PARTS = (
    ("total_", "T", "the time from the call's start to the end of both"),
    ("api_", "A", "the call's duration"),
    ("queue_", "Q", "the time from the call's end to the kernel's start, where that is not negative"),
    ("kernel_", "K", "the kernel's duration"),
)
_KEYS = ["process_id", "thread_id", "device_id", "api_name", "name"]


@analysis(
    "cuda_kern_exec_sum",
    "CUDA kernel launch and execution summary",
    needs=("kernels", "runtime"),
    columns=(
        RUN,
        integer("process_id", "The process.", "PID", role=Role.KEY),
        integer("thread_id", "The thread that launched.", "TID", role=Role.KEY),
        integer("device_id", "The device.", "DevId", role=Role.KEY),
        integer("count", "Launches.", "Count"),
        integer("queue_count", "Launches after whose call the kernel started.", "QCount"),
        *(
            column
            for prefix, initial, what in _PARTS
            for column in spread_columns(what, heading=initial, prefix=prefix)
        ),
        name_column("api_name", "The call that launched.", "API Name"),
        name_column("name", "Name of the kernel.", "Kernel Name"),
    ),
    by_step=False,
)
def cuda_kern_exec_sum(frames: StepView) -> pl.LazyFrame:
    """One row a process, thread, device, call and kernel name, longest mean total first, then by these keys."""
    # A kernel with two calls (runtime and driver) counts under both.
    view = frames.of_trace
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    call_start, call_end = pl.col("call_start_ns"), pl.col("call_end_ns")
    rows = launches(view, kernels(view)).select(
        "run_id",
        "process_id",
        "thread_id",
        "device_id",
        printed_api_name("call_name").alias("api_name"),
        "name",
        (pl.max_horizontal(end, call_end) - call_start).alias("total"),
        (call_end - call_start).alias("api"),
        pl.when(start >= call_end).then(start - call_end).alias("queue"),
        pl.col("duration_ns").alias("kernel"),
    )
    spreads = [each for prefix, _, _ in _PARTS for each in spread(prefix.removesuffix("_"), prefix)]
    sums = rows.group_by("run_id", *_KEYS).agg(
        pl.len().cast(pl.Int64).alias("count"), pl.col("queue").count().cast(pl.Int64).alias("queue_count"), *spreads
    )
    # nsys sorts by the mean as it rounds it.
    rows = sums.sort("run_id", *_KEYS).sort(-pl.col("total_mean_ns").round(1), maintain_order=True)
    return with_runs(view, rows)


@analysis(
    "cuda_kern_exec_trace",
    "CUDA kernel launch and execution trace",
    needs=("kernels", "runtime"),
    key=(),  # rounded clocks put launches of one name at one start
    columns=(
        RUN,
        integer("call_start_ns", "Start of the call, on the profiler's own clock.", "API Start (ns)", unit="ns"),
        integer("call_ns", "Duration of the call.", "API Dur (ns)", unit="ns"),
        integer("queue_start_ns", "End of the call, where the kernel started after it.", "Queue Start (ns)", unit="ns"),
        integer("queue_ns", "From there to the kernel's start.", "Queue Dur (ns)", unit="ns"),
        integer("start_ns", "Start of the kernel.", "Kernel Start (ns)", unit="ns"),
        integer("duration_ns", "Duration of the kernel.", "Kernel Dur (ns)", unit="ns"),
        integer("total_ns", "From the call's start to the end of both.", "Total Dur (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("thread_id", "The thread that launched.", "TID", role=Role.LABEL),
        integer("device_id", "The device.", "DevId", role=Role.LABEL),
        name_column("api_name", "The call that launched.", "API Function", role=Role.LABEL),
        name_column("grid", "Blocks of the grid along x, y and z.", "GridXYZ", role=Role.LABEL),
        name_column("block", "Threads of a block along x, y and z.", "BlockXYZ", role=Role.LABEL),
        name_column("name", "Name of the kernel.", "Kernel Name", role=Role.LABEL),
    ),
    by_step=False,
)
def cuda_kern_exec_trace(frames: StepView) -> pl.LazyFrame:
    """One row a kernel and call that launched it, by the call's start, then the kernel's."""
    view = frames.of_trace
    end, call_end = pl.col("start_ns") + pl.col("duration_ns"), pl.col("call_end_ns")
    queued = pl.col("start_ns") >= call_end
    # A kernel with two calls, of runtime and driver, stands under both.
    rows = launches(view, kernels(view)).select(
        "run_id",
        "span_id",
        "call_id",
        "call_start_ns",
        (call_end - pl.col("call_start_ns")).alias("call_ns"),
        pl.when(queued).then(call_end).alias("queue_start_ns"),
        pl.when(queued).then(pl.col("start_ns") - call_end).alias("queue_ns"),
        "start_ns",
        "duration_ns",
        (pl.max_horizontal(end, call_end) - pl.col("call_start_ns")).alias("total_ns"),
        "process_id",
        "thread_id",
        "device_id",
        printed_api_name("call_name").alias("api_name"),
        *(extents(what) for what in ("grid", "block")),
        "name",
    )
    stamped = on_source_clock(view, rows, ("call_start_ns", "queue_start_ns", "start_ns"))
    return with_runs(view, stamped.sort("call_start_ns", "start_ns", "span_id", "call_id"))
