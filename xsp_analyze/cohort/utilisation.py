"""GPU and FP32 utilisation as Zhu et al. define them.

Source: Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018, section on metrics:
GPU utilisation is the time in which the GPU is active over the time elapsed; FP32 utilisation is the flops counted
while it was active over the most it could have done in that time, peak rate times active time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.device_peaks import agreed_peaks
from xsp_analyze.frames.timeline import breakdown

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["Utilisation", "utilisation"]

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares in 0..1; null: unknown. `fp32_coverage` is the part of device time whose flops were counted."""

    gpu: float | None = None
    fp32: float | None = None
    fp32_coverage: float | None = None


def utilisation(frames: StepFrames) -> Utilisation:
    """Over the steps of the trace where it has any, else over all of it."""
    if frames.of_trace.all_activities.is_empty():
        return Utilisation()
    fp32, coverage = _fp32(frames)
    return Utilisation(_gpu(frames), fp32, coverage)


def _gpu(frames: StepFrames) -> float | None:
    """Busy time of all devices over elapsed time times devices, each run's clipped to its own window."""
    windows = _windows(frames)
    work = (
        frames.of_trace.all_activities.join(windows, on="run_id")
        .with_columns(
            pl.max_horizontal("start_ns", "from_ns").alias("begin_ns"),
            pl.min_horizontal(pl.col("start_ns") + pl.col("duration_ns"), "to_ns").alias("end_ns"),
        )
        .filter(pl.col("end_ns") >= pl.col("begin_ns"))
        .with_columns(
            pl.col("begin_ns").alias("start_ns"), (pl.col("end_ns") - pl.col("begin_ns")).alias("duration_ns")
        )
    )
    if work.is_empty():
        return None
    busy = breakdown(work, ["run_id", "device_id"]).join(windows, on="run_id")
    elapsed = int((busy["to_ns"] - busy["from_ns"]).sum())
    return int(busy["busy_ns"].sum()) / elapsed if elapsed > 0 else None


def _windows(frames: StepFrames) -> pl.DataFrame:
    """run_id, from_ns, to_ns: first start to last end of the steps chosen; of runs without, of the device's work."""
    end = pl.col("start_ns") + pl.col("duration_ns")
    ends = (pl.col("start_ns").min().alias("from_ns"), end.max().alias("to_ns"))
    worked = frames.of_trace.all_activities.group_by("run_id").agg(ends)
    spanned = frames.trace.scan("spans").filter(pl.col("level") == "model", pl.col("kind") == "step")
    steps = (
        spanned.join(frames.steps.lazy().select("run_id", "step"), on=["run_id", "step"], how="semi")
        .group_by("run_id")
        .agg(ends)
        .collect()
    )
    extents = frames.trace.scan("spans").group_by("run_id").agg(ends).collect()
    rest = worked.select("run_id").join(extents, on="run_id").join(steps, on="run_id", how="anti")
    return pl.concat([steps.join(worked, on="run_id", how="semi"), rest]).sort("run_id")


def _fp32(frames: StepFrames) -> tuple[float | None, float | None]:
    work = frames.executions
    if "flop_count" not in work.columns:
        return None, None
    counted = work.filter(pl.col("flop_count").is_not_null())
    active, total = float(counted["duration_ns"].sum()), float(work["duration_ns"].sum())
    if not active:
        return None, None
    peak = agreed_peaks(frames).filter(pl.col("quantity") == "fp32")["peak"]
    coverage = active / total
    if peak.is_empty():
        return None, coverage
    return float(counted["flop_count"].sum()) / (float(peak[0]) * active / _NS_PER_S), coverage
