"""Counters that say how a kernel was launched or what the device is: they go to `kernels`, `devices` and `peaks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.raw import frame_of
from xsp_model.devices import Peak, fp32_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ATTRIBUTE", "LAUNCH", "devices", "peaks"]

ATTRIBUTE = "device__attribute_"
LAUNCH: Mapping[str, str] = {
    # column of `kernels`: the counter
    "registers_per_thread": "launch__registers_per_thread",
    "static_shared_bytes": "launch__shared_mem_per_block_static",
    "dynamic_shared_bytes": "launch__shared_mem_per_block_dynamic",
    **{f"{what}_{axis}": f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"},
}
_HZ_PER_KHZ = 1000
_KHZ_PER_MHZ = 1000
_DOUBLE_RATE = 2  # data moves on both edges of the memory clock
_BITS_PER_BYTE = 8


def devices(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The staging table `devices`: one row a device from its first kernel's attributes.

    `rows`: device_id, compute_capability and counters, one row a kernel; `names`: device_id, name.
    """
    first = _by_device(rows.drop("name", strict=False)).join(names, on="device_id", how="left", maintain_order="left")

    def attribute(name: str) -> pl.Expr:
        column = f"{ATTRIBUTE}{name}"
        return pl.col(column) if column in first.columns else pl.lit(None, pl.Float64)

    clock = attribute("clock_rate") * _HZ_PER_KHZ
    lanes = pl.col("compute_capability").map_elements(fp32_lanes, return_dtype=pl.Int64)
    rate = attribute("memory_clock_rate") * _HZ_PER_KHZ * _DOUBLE_RATE
    bandwidth = rate * attribute("global_memory_bus_width") / _BITS_PER_BYTE
    flop_per_s = attribute("multiprocessor_count") * lanes * 2 * clock
    at = pl.format(
        "derived at {} MHz: {} multiprocessors x {} FP32 lanes x 2; bandwidth from memory clock and bus width",
        (clock / 1e6).round().cast(pl.Int64, strict=False),
        attribute("multiprocessor_count").cast(pl.Int64, strict=False),
        lanes,
    )
    table = first.select(
        "device_id",
        "name",
        attribute("multiprocessor_count").alias("multiprocessor_count"),
        "compute_capability",
        clock.alias("clock_hz"),
        attribute("total_memory").alias("memory_bytes"),
        bandwidth.alias("dram_byte_per_s"),
        flop_per_s.alias("fp32_flop_per_s"),
        pl.when(flop_per_s.is_not_null() & bandwidth.is_not_null()).then(at).alias("peak_source"),
    )
    return frame_of("devices", table) if table.height else frame_of("devices")


_PER_CYCLE: Mapping[str, str] = {
    # quantity: the counter that holds its peak per cycle of the multiprocessors' clock
    "fp32": "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2",
    "fp64": "derived__sm__sass_thread_inst_executed_op_dfma_pred_on_x2",
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32_sparsity_off.sum.peak_sustained",
    "fp16_tensor": "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained",
    "bf16_tensor": "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained",
    "int8_tensor": "sm__ops_path_tensor_src_int8_sparsity_off.sum.peak_sustained",
}
_DRAM_PER_CYCLE, _DRAM_CLOCK = "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"
_SOURCE = "ncu, derived"


def peaks(rows: pl.DataFrame) -> Iterator[tuple[int, Peak]]:
    """Peaks of each device from the peak counters of a roofline section, at the device's highest clock."""
    for row in _by_device(rows).iter_rows(named=True):
        device, clock_khz = row["device_id"], row.get(f"{ATTRIBUTE}clock_rate")
        for quantity, counter in _PER_CYCLE.items():
            if clock_khz and row.get(counter):
                detail = f"derived at {clock_khz / _KHZ_PER_MHZ:.0f} MHz from {counter}"
                yield device, Peak(quantity, row[counter] * clock_khz * _HZ_PER_KHZ, _SOURCE, detail)
        if row.get(_DRAM_PER_CYCLE) and row.get(_DRAM_CLOCK) and not row.get(f"{ATTRIBUTE}memory_clock_rate"):
            detail = f"derived at {row[_DRAM_CLOCK] / 1e6:.0f} MHz, the memory clock while profiled"
            yield device, Peak("dram", row[_DRAM_PER_CYCLE] * row[_DRAM_CLOCK], _SOURCE, detail)


def _by_device(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a device: of each column the first value that is not null."""
    devices = rows.drop_nulls("device_id").group_by("device_id", maintain_order=True)
    return devices.agg(pl.all().drop_nulls().first())
