"""Peak rates of the devices that did the work, each with the words for where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernel_means import kernel_executions
from xsp_analyze.frames.peak_rates import DEVICE, peaks_of

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["agreed_peaks", "device_peaks"]


def device_peaks(frames: StepView) -> pl.DataFrame:
    """One row a device that was used and a known peak of it: the columns of DEVICE, quantity, peak, words."""
    return peaks_of(frames.trace, frames.once(kernel_executions).select(DEVICE).unique(maintain_order=True))


def agreed_peaks(frames: StepView) -> pl.DataFrame:
    """One row a quantity whose peak is known of every device that was used and the same for all: quantity, peak, words.

    Work of several devices is held against it: sums of flops over sums of durations are the throughput of one.
    """
    peaks = device_peaks(frames)
    devices = frames.once(kernel_executions).select(DEVICE).n_unique()
    return (
        peaks.group_by("quantity", maintain_order=True)
        .agg(pl.col("peak", "words").first(), pl.len().alias("known"), pl.col("peak").n_unique().alias("values"))
        .filter(pl.col("known") == devices, pl.col("values") == 1)
        .select("quantity", "peak", "words")
    )
