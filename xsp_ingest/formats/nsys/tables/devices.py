"""The GPUs of the file and the peak rates that follow from what it says about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.rows import ExportRows
from xsp_model.peaks import FP32_LANES

if TYPE_CHECKING:
    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["devices"]

_FLOP_PER_LANE = 2  # a fused multiply-add a cycle
_GPU = ("id", "totalMemory", "memoryBandwidth", "clockRate", "smCount", "cuDevice", "computeMajor", "computeMinor")


def devices(database: Tables) -> ExportRows:
    """One row a device as the program numbers it; a process that sees a subset of the GPUs has rows of its own."""
    gpus = database.integers("TARGET_INFO_GPU", _GPU)
    if gpus.is_empty():
        return ExportRows({})
    gpus = gpus.with_columns(database.texts("TARGET_INFO_GPU", "name"))
    return ExportRows({"devices": _with_device_ids(database, gpus).select(*_columns())})


def _with_device_ids(database: Tables, gpus: pl.DataFrame) -> pl.DataFrame:
    """Adds `device_id` (the CUDA ordinal) and `process_id`."""
    seen = database.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    seen = seen.drop_nulls(["gpuId", "cudaId"]).unique(["cudaId", "pid"], keep="first", maintain_order=True)
    if not seen.is_empty():
        return seen.join(gpus, left_on="gpuId", right_on="id", maintain_order="left").with_columns(
            pl.col("cudaId").alias("device_id"), pl.col("pid").alias("process_id")
        )
    # Older files do not map; there the driver's own ordinal is the program's, unless it chose among the GPUs.
    ordinal = pl.col("cuDevice") if gpus["cuDevice"].is_unique().all() else pl.col("id")
    numbered = gpus.with_columns(
        pl.coalesce(ordinal, "id").alias("device_id"), pl.lit(None, dtype=pl.Int64).alias("process_id")
    )
    return numbered.drop_nulls("device_id")


def _columns() -> list[pl.Expr]:
    capability = pl.when(pl.col("computeMajor") > 0).then(pl.format("{}.{}", "computeMajor", "computeMinor"))
    lanes = pl.coalesce(
        _lanes(pl.format("{}.{}", "computeMajor", "computeMinor")), _lanes(pl.col("computeMajor").cast(pl.String))
    )
    clock = pl.when(pl.col("clockRate") > 0).then(pl.col("clockRate"))
    bandwidth = pl.when(pl.col("memoryBandwidth") > 0).then(pl.col("memoryBandwidth")).cast(pl.Float64)
    flop_per_s = (pl.col("smCount") * lanes * _FLOP_PER_LANE).cast(pl.Float64) * clock
    megahertz = (clock / 1e6).round().cast(pl.Int64)
    text = pl.format(
        "derived at {} MHz: {} multiprocessors x {} FP32 lanes x 2; bandwidth from the driver",
        megahertz,
        "smCount",
        lanes,
    )
    return [
        pl.col("device_id"),
        pl.col("process_id"),
        pl.col("name"),
        pl.col("smCount").alias("multiprocessor_count"),
        capability.alias("compute_capability"),
        clock.alias("clock_hz"),
        pl.col("totalMemory").alias("memory_bytes"),
        bandwidth.alias("dram_byte_per_s"),
        flop_per_s.alias("fp32_flop_per_s"),
        pl.when(flop_per_s.is_not_null())
        .then(text)
        .when(bandwidth.is_not_null())
        .then(pl.lit("bandwidth from the driver"))
        .alias("peak_source"),
    ]


def _lanes(capability: pl.Expr) -> pl.Expr:
    return capability.replace_strict(FP32_LANES, default=None, return_dtype=pl.Int64)
