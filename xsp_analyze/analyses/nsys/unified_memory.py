"""Unified memory in `nsys stats`: migrations and page faults by page, in all, and by the host's instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.sources import bytes_column, integer, name_column
from xsp_analyze.core import Column, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["by_page", "hexadecimal", "um_cpu_page_faults_sum", "um_sum", "um_total_sum"]


_NS_PER_S = 1_000_000_000
_TO_DEVICE, _TO_HOST = "Unified Host-to-Device", "Unified Device-to-Host"


def by_page(view: TraceView) -> pl.LazyFrame:
    """One row an address: to_device_bytes, to_host_bytes, host_faults and device_faults (null: none), byte_per_s."""
    return _migrations(view).join(_faults(view), on="address", how="full", coalesce=True, nulls_equal=True)


def _migrations(view: TraceView) -> pl.LazyFrame:
    kind, size = pl.col("copy_kind"), pl.col("bytes")
    spans = view.kernel_runs.scan("spans").select("span_id", "run_id", "duration_ns")
    moved = view.trace.scan("copies").with_columns(kind.cast(pl.String)).filter(kind.is_in([_TO_DEVICE, _TO_HOST]))
    sums = moved.join(spans, on="span_id").group_by(pl.col("virtual_address").alias("address")).agg(
        *(
            pl.when((kind == which).any()).then(size.filter(kind == which).sum()).alias(name)
            for which, name in ((_TO_DEVICE, "to_device_bytes"), (_TO_HOST, "to_host_bytes"))
        ),
        pl.col("duration_ns").sum(),
    )  # fmt: skip
    total = pl.sum_horizontal("to_device_bytes", "to_host_bytes")
    # In whole pieces of such a size per second, as nsys computes it.
    pace = total * (_NS_PER_S // pl.when(pl.col("duration_ns") > 0).then("duration_ns"))
    return sums.with_columns(pace.alias("byte_per_s")).drop("duration_ns")


def _faults(view: TraceView) -> pl.LazyFrame:
    on_host, count = pl.col("device_id").is_null(), pl.col("count")
    return view.kernel_runs.scan("page_faults").group_by("address").agg(
        pl.when(on_host.any()).then(count.filter(on_host).sum()).alias("host_faults"),
        pl.when((~on_host).any()).then(count.filter(~on_host).sum()).alias("device_faults"),
    )  # fmt: skip


def hexadecimal(addresses: pl.Series) -> pl.Series:
    """Addresses as nsys prints them: `0x7F0000001000`."""
    texts = [None if address is None else f"0x{address:X}" for address in addresses.to_list()]
    return pl.Series(addresses.name, texts, dtype=pl.String)


def _megabytes(name: str, doc: str, header: str, unit: str = "byte") -> Column:
    return Column(name, pl.Int64(), doc, unit, header=header, decimals=3)


@analysis(
    "um_sum",
    "Unified memory by page",
    needs=("unified memory",),
    columns=(
        name_column("address", "Where the block begins.", "Virtual Address"),
        _megabytes("to_device_bytes", "Bytes that moved from host to device.", "HtoD Migration size (MB)"),
        _megabytes("to_host_bytes", "Bytes that moved from device to host.", "DtoH Migration size (MB)"),
        integer("host_faults", "Faults of the host.", "CPU Page Faults"),
        integer("device_faults", "Faults of devices.", " GPU Page Faults"),
        _megabytes("byte_per_s", "Bytes moved per second that moving took.", "Migration Throughput (MB/s)", "byte/s"),
    ),
    by_step=False,
)
def um_sum(frames: StepView) -> pl.LazyFrame:
    """One row an address, fastest migrations first, then by address; nsys stops at ten rows unless told otherwise."""
    rows = by_page(frames.of_trace).sort(-pl.col("byte_per_s"), "address", nulls_last=True).collect()
    return rows.with_columns(hexadecimal(rows["address"])).lazy()


_SUMS = ("to_device_bytes", "to_host_bytes", "host_faults", "device_faults")


@analysis(
    "um_total_sum",
    "Unified memory in all",
    needs=("unified memory",),
    key=(),  # a single row
    columns=(
        *(
            bytes_column(name, f"Bytes that moved from {way}; null: none did.", header)
            for name, way, header in (
                ("to_device_bytes", "host to device", "Total HtoD Migration Size (MB)"),
                ("to_host_bytes", "device to host", "Total DtoH Migration Size (MB)"),
            )
        ),
        integer("host_faults", "Faults of the host.", "Total CPU Page Faults"),
        integer("device_faults", "Faults of devices; null: none.", "Total GPU PageFaults"),
        name_column(
            "least_address", "Least address that a page moved from, or was missed at.", "Minimum Virtual Address"
        ),
        name_column("greatest_address", "Greatest one.", "Maximum Virtual Address"),
    ),
    by_step=False,
)
def um_total_sum(frames: StepView) -> pl.LazyFrame:
    """One row; nsys leaves the addresses open unless there were migrations both ways and faults on both sides."""
    sums = (pl.when(pl.col(c).is_not_null().any()).then(pl.col(c).sum()).alias(c) for c in _SUMS)
    address = pl.col("address")
    ends = address.min().alias("least_address"), address.max().alias("greatest_address")
    row = by_page(frames.of_trace).select(*sums, *ends).collect()
    texts = (hexadecimal(row[name]) for name in ("least_address", "greatest_address"))
    return row.with_columns(pl.col("host_faults").fill_null(0), *texts).lazy()


@analysis(
    "um_cpu_page_faults_sum",
    "Page faults of the host",
    needs=("unified memory",),
    columns=(
        integer("count", "Faults.", "CPU Page Faults"),
        name_column("instruction", "The instruction, as the profiler names it.", "CPU Instruction Address"),
    ),
    by_step=False,
)
def um_cpu_page_faults_sum(frames: StepView) -> pl.LazyFrame:
    """One row an instruction of the host that missed pages of unified memory, most faults first, then by name."""
    faults = frames.of_trace.kernel_runs.scan("page_faults").filter(pl.col("device_id").is_null())
    rows = faults.group_by("instruction").agg(pl.col("count").sum())
    return rows.sort(-pl.col("count"), "instruction", nulls_last=True)
