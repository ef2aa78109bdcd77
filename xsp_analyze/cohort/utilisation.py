"""GPU and FP32 utilisation as Zhu et al. define them.

Source: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018, section on metrics:
GPU utilisation is the time in which the GPU is active over the time elapsed; FP32 utilisation is the flops counted
while it was active over the most it could have done in that time, peak rate times active time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.frames import device_time
from xsp_analyze.frames.device_peaks import agreed_peaks
from xsp_analyze.frames.kernel_means import kernel_executions

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["Utilisation", "utilisation"]

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares in 0..1; null: unknown. `fp32_coverage` is the part of device time whose flops were counted."""

    gpu: float | None = None
    fp32: float | None = None
    fp32_coverage: float | None = None


def utilisation(frames: StepView) -> Utilisation:
    """Over the steps of the trace where it has any, else over all of it."""
    if frames.of_trace.all_activities.is_empty():
        return Utilisation()
    fp32, coverage = _fp32(frames)
    return Utilisation(device_time.utilisation(frames).share, fp32, coverage)


def _fp32(frames: StepView) -> tuple[float | None, float | None]:
    work = frames.once(kernel_executions)
    if "flop_count" not in work.columns:
        return None, None
    counted = work.filter(pl.col("flop_count").is_not_null())
    active, total = total_of(counted["duration_ns"]), total_of(work["duration_ns"])
    if not active:
        return None, None
    peak = agreed_peaks(frames).filter(pl.col("quantity") == "fp32")["peak"]
    coverage = active / total
    if peak.is_empty():
        return None, coverage
    return total_of(counted["flop_count"]) / (float(peak[0]) * active / _NS_PER_S), coverage
