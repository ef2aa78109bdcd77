"""What each device did with its time, over the steps chosen: one account for tables, pages, findings and cohorts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.idle import CAUSES, DEVICE, idle_by_device
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.steps import StepBasis, StepMode, kept_steps
from xsp_analyze.frames.timeline import MEASURES, measures_in

if TYPE_CHECKING:
    from xsp_analyze.frames.idle import IdleTime
    from xsp_analyze.trace.step_view import StepView

__all__ = ["DeviceTime", "Utilisation", "device_time", "device_windows", "utilisation"]

_CALLS = {"cause": pl.Int64(), "call": pl.Int64(), "idle_ns": pl.Int64(), "gap_count": pl.Int64()}
_WORK = (
    "process_id",
    "step",
    "kind",
    "kernel_class",
    "start_ns",
    "duration_ns",
)


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """`parts`: run_id, device_id (and step, where each is answered), MEASURES and CAUSES in ns, in order.

    `calls`: the same keys, cause (a name in CAUSES), call (name of what explains it, null: none does), idle_ns and
    gap_count (stretches). Of a mean step both are means over whole steps, those that the trimmed mean of latency keeps:
    so parts add up in it as they do in each step, and the window is the latency.
    """

    parts: pl.DataFrame
    calls: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Busy time over the windows of so many devices; `share` is null where nothing was timed."""

    busy_ns: float
    window_ns: float
    device_count: int

    @property
    def share(self) -> float | None:
        """Of the time of all devices, in 0..1."""
        return self.busy_ns / self.window_ns if self.window_ns > 0 else None


def utilisation(frames: StepView) -> Utilisation:
    """How much of the time of the devices that worked at all they were busy, over the steps chosen."""
    parts = frames.once(device_time).parts
    if frames.of_trace.is_one_by_one:
        return Utilisation(total_of(parts["busy_ns"]), 0.0, 0)
    devices = parts.select(DEVICE).n_unique() if parts.height else 0
    return Utilisation(total_of(parts["busy_ns"]), total_of(parts["window_ns"]), devices)


def device_time(frames: StepView) -> DeviceTime:
    """The account of every device that worked in the runs that kernels are taken from."""
    windows = device_windows(frames)
    work = frames.of_trace.all_activities.select(*DEVICE, *_WORK).partition_by(DEVICE, as_dict=True, include_key=False)
    idle = frames.of_trace.once(idle_by_device)
    pieces = [_of_device(work[key], idle[key], rows) for key, rows in windows.group_by(DEVICE, maintain_order=True)]
    keys = [*DEVICE, "step"]
    schema = {**windows.select(keys).schema, **dict.fromkeys((*MEASURES, *CAUSES), pl.Int64())}
    parts = pl.concat([pl.DataFrame(schema=schema), *(p.parts for p in pieces)])
    calls = pl.concat([pl.DataFrame(schema={**windows.select(keys).schema, **_CALLS}), *(p.calls for p in pieces)])
    return _answer(frames, parts, _idle_by_name(frames, calls))


def _answer(frames: StepView, parts: pl.DataFrame, calls: pl.DataFrame) -> DeviceTime:
    """Every step as it is, the mean over whole steps, or the one window of the whole trace."""
    if frames.choice.mode is StepMode.EACH:
        order = ["step", *DEVICE]
        return DeviceTime(parts.sort(order, nulls_last=True), calls.sort(*order, "cause", "call", nulls_last=True))
    by, per_call, measures = list(DEVICE), [*DEVICE, "cause", "call"], [*MEASURES, *CAUSES]
    sums = parts.group_by(by, maintain_order=True).agg(pl.col(measures).sum(), pl.len().alias("windows"))
    calls = calls.group_by(per_call, maintain_order=True).agg(pl.col("idle_ns", "gap_count").sum())
    if frames.averaged:
        number = calls.join(sums.select(*by, "windows"), on=by, how="left", maintain_order="left")["windows"]
        calls = calls.with_columns(pl.col("idle_ns", "gap_count") / number)
        sums = sums.with_columns(quotient(pl.col(each), pl.col("windows")) for each in measures)
    return DeviceTime(
        sums.drop("windows").sort(by, nulls_last=True),
        calls.sort(*by, "idle_ns", "cause", "call", descending=[False, False, True, False, False], nulls_last=True),
    )


def device_windows(frames: StepView) -> pl.DataFrame:
    """run_id, device_id, step, begin_ns, end_ns of the time chosen, for every device that worked.

    In steps those of the process that used the device (of the slowest, where several did), in a mean those that the
    trimmed mean of latency keeps; of whole traces what is `seen` of the run, its step null.
    """
    devices = (
        frames.of_trace.all_activities.group_by(DEVICE)
        .agg(pl.col("process_id").first(), pl.col("process_id").n_unique().alias("processes"))
        .sort(DEVICE, nulls_last=True)
    )
    if frames.choice.mode is StepMode.ALL:
        return devices.join(frames.of_trace.seen, on="run_id").select(
            *DEVICE, pl.lit(None, pl.Int64).alias("step"), "begin_ns", "end_ns"
        )
    steps = frames.steps.filter(pl.col("basis") != str(StepBasis.TIMED))
    chosen = kept_steps(steps) if frames.averaged else steps
    of_process = frames.of_trace.process_steps.select("run_id", "process_id", "step", "begin_ns", "end_ns")
    return (
        devices.join(chosen.select("run_id", "step", "begin_ns", "end_ns"), on="run_id")
        .join(of_process, on=["run_id", "process_id", "step"], how="left", suffix="_own")
        .with_columns(
            pl.when(pl.col("processes") == 1).then(f"{c}_own").fill_null(pl.col(c)).alias(c)
            for c in ("begin_ns", "end_ns")
        )
        .select(*DEVICE, "step", "begin_ns", "end_ns")
        .sort(*DEVICE, "begin_ns", nulls_last=True)
    )


def _of_device(work: pl.DataFrame, idle: IdleTime, windows: pl.DataFrame) -> DeviceTime:
    keys = windows.select(*DEVICE, "step")
    causes, calls = _idle(idle, windows)
    return DeviceTime(
        keys.hstack(measures_in(work, windows)).hstack(causes), keys[calls["window"]].hstack(calls.drop("window"))
    )


def _idle(idle: IdleTime, windows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """CAUSES of each window; and its idle time by cause and call: window, cause, call, idle_ns, gap_count."""
    parts = [idle.within(begin, until) for begin, until in windows.select("begin_ns", "end_ns").iter_rows()]
    length, cause, call = (np.concatenate([part[i] for part in parts]) for i in range(3))
    window = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    sums = np.zeros((windows.height, len(CAUSES)), dtype=np.int64)
    np.add.at(sums, (window, cause), length)
    stretches = pl.DataFrame({"window": window, "cause": cause, "call": call, "idle_ns": length})
    calls = stretches.group_by("window", "cause", "call", maintain_order=True).agg(
        pl.col("idle_ns").sum(), pl.len().cast(pl.Int64).alias("gap_count")
    )
    return pl.DataFrame(sums, schema=dict.fromkeys(CAUSES, pl.Int64)), calls


def _idle_by_name(frames: StepView, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls by the names of their spans: one row a window, cause and name."""
    span = calls.select(pl.when(pl.col("call") >= 0).then("call")).to_series()
    cause = pl.Series("cause", CAUSES, dtype=pl.String).gather(calls["cause"])
    named = calls.with_columns(cause, column_at(frames.trace, "name", span).cast(pl.String).alias("call"))
    keys = [*DEVICE, "step", "cause", "call"]
    return named.group_by(keys, maintain_order=True).agg(pl.col("idle_ns", "gap_count").sum())
