"""Migrations and page faults of unified memory by page, as `nsys stats` counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["by_page", "hexadecimal"]

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
