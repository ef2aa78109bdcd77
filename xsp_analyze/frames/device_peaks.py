"""Peak rates of the devices that did the work, each with the words for where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model import Trace

__all__ = ["BANDWIDTH", "DEVICE", "agreed_peaks", "device_peaks"]

BANDWIDTH = "dram"
"""The quantity in `peaks` that bounds memory traffic."""

DEVICE = ("run_id", "process_id", "device_id")
"""What tells devices apart in a frame of executions."""

_COLUMNS = {"fp32": "fp32_flop_per_s", BANDWIDTH: "dram_byte_per_s"}  # what the table `devices` holds itself
_SCOPE = ("run_id", "device_id", "process_id")


def device_peaks(frames: StepFrames) -> pl.DataFrame:
    """One row a device that was used and a known peak of it: the columns of DEVICE, quantity, peak, words."""
    used = frames.executions.select(DEVICE).unique(maintain_order=True)
    peaks = used.join(_all_peaks(frames.trace), on=["run_id", "device_id"], suffix="_of_peak")
    of_process = pl.col("process_id_of_peak")
    return (
        peaks.filter(of_process.is_null() | of_process.eq_missing(pl.col("process_id")))
        .sort(*DEVICE, "quantity", of_process, nulls_last=True, maintain_order=True)
        .unique([*DEVICE, "quantity"], keep="first", maintain_order=True)
        .select(*DEVICE, "quantity", "peak", "words")
    )


def agreed_peaks(frames: StepFrames) -> pl.DataFrame:
    """One row a quantity whose peak is known of every device that was used and the same for all: quantity, peak, words.

    Work of several devices is held against it: sums of flops over sums of durations are the throughput of one.
    """
    peaks = device_peaks(frames)
    devices = frames.executions.select(DEVICE).n_unique()
    return (
        peaks.group_by("quantity", maintain_order=True)
        .agg(pl.col("peak", "words").first(), pl.len().alias("known"), pl.col("peak").n_unique().alias("values"))
        .filter(pl.col("known") == devices, pl.col("values") == 1)
        .select("quantity", "peak", "words")
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
