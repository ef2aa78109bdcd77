"""Peak rates of devices as the trace knows them, each with the words for where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["BANDWIDTH", "DEVICE", "peaks_of"]

BANDWIDTH = "dram"
"""The quantity in `peaks` that bounds memory traffic."""

DEVICE = ("run_id", "process_id", "device_id")
"""What tells devices apart in a frame of executions."""

_COLUMNS = {"fp32": "fp32_flop_per_s", BANDWIDTH: "dram_byte_per_s"}  # what the table `devices` holds itself
_SCOPE = ("run_id", "device_id", "process_id")


def peaks_of(trace: Trace, devices: pl.DataFrame) -> pl.DataFrame:
    """One row a device of these (the columns of DEVICE, and others) and a known peak of it: quantity, peak, words."""
    peaks = devices.join(_all_peaks(trace), on=["run_id", "device_id"], suffix="_of_peak")
    of_process = pl.col("process_id_of_peak")
    return (
        peaks.filter(of_process.is_null() | of_process.eq_missing(pl.col("process_id")))
        .sort(*DEVICE, "quantity", of_process, nulls_last=True, maintain_order=True)
        .unique([*DEVICE, "quantity"], keep="first", maintain_order=True)
        .select(*devices.columns, "quantity", "peak", "words")
    )


def _all_peaks(trace: Trace) -> pl.DataFrame:
    """The peaks of all devices: those of `peaks`, and where it says nothing those of `devices`."""
    devices = trace.frame("devices")
    described = trace.frame("runs").select("run_id", "device_name")
    names = devices.select(*_SCOPE, "name").join(described, on="run_id", how="left", maintain_order="left")
    recorded = trace.frame("peaks").select(
        *_SCOPE, pl.col("quantity").cast(pl.String), pl.col("value").alias("peak"), "source"
    )
    own = [
        devices.select(*_SCOPE, pl.lit(quantity).alias("quantity"), pl.col(column).alias("peak"), source=_source())
        for quantity, column in _COLUMNS.items()
    ]
    every = pl.concat([recorded, *own]).drop_nulls("peak")
    return (
        every.unique([*_SCOPE, "quantity"], keep="first", maintain_order=True)
        .join(names, on=_SCOPE, how="left", nulls_equal=True, maintain_order="left")
        .select(*_SCOPE, "quantity", "peak", _sentence())
    )


def _source() -> pl.Expr:
    return pl.col("peak_source").fill_null("the trace's table of devices")


def _sentence() -> pl.Expr:
    what = pl.when(pl.col("quantity") == BANDWIDTH).then(pl.lit("DRAM bandwidth")).otherwise(
        pl.format("{} peak", "quantity")
    )  # fmt: skip
    device = pl.coalesce("name", "device_name", pl.format("device {}", "device_id"))
    return pl.format("{} of {} ({})", what, device, "source").alias("words")
