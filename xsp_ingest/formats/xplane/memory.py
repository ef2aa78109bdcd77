"""Allocations that the host's lines record, for the staging table of memory in use."""

from __future__ import annotations

import polars as pl

from xsp_ingest.formats.xplane.host import Role
from xsp_ingest.staging.raw import frame_of

__all__ = ["allocations"]

_DEVICE = r"(?i)^GPU_(\d{1,6})_"


def allocations(host: pl.DataFrame) -> pl.DataFrame:
    """One row an allocation or a release; allocators as `GPU_0_bfc` are a device's, all others the host's."""
    events = host.filter(pl.col("role") == Role.MEMORY)
    freed = pl.col("event_name") == "MemoryDeallocation"
    allocator = pl.col("allocator_name").cast(pl.String)
    return frame_of(
        "allocations",
        events.sort("start_ns").select(
            "process_id",
            "thread_id",
            pl.col("start_ns").alias("time_ns"),
            allocator.str.extract(_DEVICE).cast(pl.Int64, strict=False).alias("device_id"),
            pl.when(freed).then(-pl.col("allocation_bytes")).otherwise(pl.col("allocation_bytes")).alias("bytes"),
            pl.col("bytes_allocated").alias("allocated_bytes"),
            pl.when(pl.col("bytes_reserved") > 0).then(pl.col("bytes_reserved")).alias("reserved_bytes"),
            pl.when(pl.col("addr") != 0).then(pl.col("addr")).alias("address"),
        ),
    )
