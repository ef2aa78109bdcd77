"""The devices of a dump and the peak rates that follow from what CUPTI says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.raw import frame_of
from xsp_model.peaks import fp32_lanes

if TYPE_CHECKING:
    from xsp_ingest.staging.cupti.records import Records

__all__ = ["devices"]

_FLOP_PER_LANE = 2  # a fused multiply-add a cycle
_HZ_PER_KHZ = 1_000
_MAX = 1 << 40  # kHz, kB/s: beyond, a value is none


def devices(records: Records) -> pl.DataFrame:
    """One row a device; CUPTI gives its clock in kHz and its bandwidth in kB/s."""
    rows = records.of("DEVICE").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    capability = pl.format("{}.{}", "computeCapabilityMajor", "computeCapabilityMinor")
    rated = rows.with_columns(
        pl.when(pl.col("computeCapabilityMajor") > 0).then(capability).alias("capability"),
        *(pl.when(pl.col(n).is_between(1, _MAX)).then(pl.col(n)) for n in ("coreClockRate", "globalMemoryBandwidth")),
    )
    lanes = pl.Series("lanes", [fp32_lanes(each) for each in rated["capability"].to_list()], dtype=pl.Int64)
    clock = pl.col("coreClockRate") * _HZ_PER_KHZ
    flop_per_s = (pl.col("numMultiprocessors") * pl.col("lanes") * _FLOP_PER_LANE).cast(pl.Float64) * clock
    text = pl.format("derived at {} MHz; bandwidth from the driver", pl.col("coreClockRate") // _HZ_PER_KHZ)
    return frame_of(
        "devices",
        rated.with_columns(lanes).select(
            pl.col("id").alias("device_id"),
            "name",
            pl.col("numMultiprocessors").alias("multiprocessor_count"),
            pl.col("capability").alias("compute_capability"),
            clock.alias("clock_hz"),
            pl.col("globalMemorySize").alias("memory_bytes"),
            pl.col("globalMemoryBandwidth").cast(pl.Float64).mul(_HZ_PER_KHZ).alias("dram_byte_per_s"),
            flop_per_s.alias("fp32_flop_per_s"),
            pl.when(flop_per_s.is_not_null())
            .then(text)
            .when(pl.col("globalMemoryBandwidth").is_not_null())
            .then(pl.lit("bandwidth from the driver"))
            .alias("peak_source"),
        ),
    )
