"""Peak rates of the devices that did the work, each with the words for where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernel_means import kernel_executions
from xsp_analyze.frames.peak_rates import DEVICE, peaks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["TENSOR_RATES", "agreed_peaks", "device_peaks", "known_peaks"]

TENSOR_RATES = ("tf32", "bf16_tensor", "fp16_tensor")
"""Rates of tensor cores for products of FP32 models, the easiest to move to first."""


def known_peaks(view: TraceView) -> Mapping[str, float]:
    """Peak rates by quantity, of several devices the least; only what is known of the devices that were used."""
    used = view.all_activities.select(DEVICE).unique(maintain_order=True)
    rows = peaks_of(view.trace, used).group_by("quantity").agg(pl.col("peak").min())
    return {str(quantity): float(peak) for quantity, peak in rows.iter_rows()}


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
