"""`nsys stats`' CUDA GPU trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import copies, kernels
from xsp_analyze.analyses.nsys.statistics import integer, name_column, with_runs
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, Role, analysis
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["cuda_gpu_trace"]

_NS_PER_S = 1_000_000_000
_ORDER = {str(kind): rank for rank, kind in enumerate((Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))}


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows, with start_ns on the source's own clock."""
    moved = copies(view).with_columns(
        pl.col("operation").alias("name"),
        # nsys puts the memory that a memset filled under the source.
        *_where("source_kind", pl.coalesce("source_kind", "destination_kind")),
        *_where("destination_kind", pl.lit(None, dtype=pl.String)),
        # In whole bytes per second and byte, as nsys computes it.
        (pl.col("bytes") * (_NS_PER_S // _positive("duration_ns"))).alias("byte_per_s"),
    )
    rows = pl.concat([kernels(view), moved], how="diagonal_relaxed")
    return _named_device(view, _on_source_clock(view, rows)).sort(
        "start_ns", pl.col("kind").replace_strict(_ORDER, return_dtype=pl.Int64), "span_id"
    )


def _where(name: str, of_memset: pl.Expr) -> tuple[pl.Expr]:
    return (pl.when(pl.col("kind") == Kind.MEMSET).then(of_memset).otherwise(pl.col(name)).alias(name),)


def _positive(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(pl.col(name))


def _on_source_clock(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    origins = view.timed_runs.scan("runs").select("run_id", "clock_origin_ns")
    joined = rows.join(origins, on="run_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("start_ns") + pl.col("clock_origin_ns"), pl.col("correlation_id").fill_null(0))


def _named_device(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    devices = view.timed_runs.scan("devices").select(
        "run_id", "device_id", "process_id", pl.col("name").alias("device_name")
    )
    own = devices.filter(pl.col("process_id").is_not_null())
    common = devices.filter(pl.col("process_id").is_null()).drop("process_id").unique(["run_id", "device_id"])
    rows = rows.join(own, on=["run_id", "device_id", "process_id"], how="left", maintain_order="left")
    rows = rows.join(common, on=["run_id", "device_id"], how="left", maintain_order="left", suffix="_common")
    name = pl.coalesce("device_name", "device_name_common", pl.lit(""))
    return rows.with_columns(pl.format("{} ({})", name, "device_id").alias("device"), _no_green_context())


def _no_green_context() -> pl.Expr:
    return pl.lit(None, dtype=pl.Int64).alias("green_context_id")


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
        Column(
            "static_shared_bytes",
            pl.Int64(),
            "Static shared memory per block.",
            "byte",
            header="StcSMem (MB)",
            decimals=3,
        ),
        Column(
            "dynamic_shared_bytes",
            pl.Int64(),
            "Dynamic shared memory per block.",
            "byte",
            header="DymSMem (MB)",
            decimals=3,
        ),
        Column("bytes", pl.Int64(), "Bytes copied or filled.", "byte", header="Bytes (MB)", decimals=3),
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
    return with_runs(frames.of_trace, table(frames.of_trace))
