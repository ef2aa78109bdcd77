"""Where findings are: the device, the framework, the phase, and what the trace records."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.frames.activities import column_at
from xsp_analyze.frames.device_peaks import device_peaks
from xsp_model import Attribution, Kind, LayerSource, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.step_view import StepView

__all__ = ["TENSOR_RATES", "Circumstance", "Context"]

TENSOR_RATES = ("tf32", "bf16_tensor", "fp16_tensor")
"""Rates of tensor cores for products of FP32 models, the easiest to move to first."""

_MOSTLY = 0.5
_GRAPH_LAUNCH = "(?i)GraphLaunch"


class Circumstance(StrEnum):
    """What a rule may need of a trace."""

    DEVICE_WORK = "device work is recorded"
    TIMELINE = "the trace is a timeline of host and device; not kernels replayed one by one for counters"
    LAYERS = "layers are recorded, and less than half of the device time is replays of graphs"
    LAUNCHES = "launches are recorded"
    NOT_REPLAYED = "less than half of the device time is replays of graphs"
    STEPS = "steps are marked"
    RANKS = "several ranks, or several devices, are in the trace"
    PEAKS = "peak rates of the device are known"
    TENSOR_CORES = "the device has tensor cores whose rate is known"


class Context:
    """Facts on the trace that decide which findings make sense."""

    def __init__(self, frames: StepView) -> None:
        self.frames = frames

    def holds(self, circumstance: Circumstance) -> bool:
        """Whether it is so in this trace."""
        return self._answers[circumstance]

    @cached_property
    def _answers(self) -> Mapping[Circumstance, bool]:
        has_work = bool(self.work.height)
        is_one_by_one = self.frames.of_trace.is_one_by_one  # then no gap tells anything
        return {
            Circumstance.DEVICE_WORK: has_work,
            Circumstance.TIMELINE: has_work and not is_one_by_one,
            Circumstance.LAYERS: self.replayed_share < _MOSTLY and not is_one_by_one,
            Circumstance.LAUNCHES: self.has_launches,
            Circumstance.NOT_REPLAYED: self.replayed_share < _MOSTLY,
            Circumstance.STEPS: not self.frames.of_trace.all_steps.is_empty(),
            Circumstance.RANKS: self.work.select("run_id", "device_id").n_unique() > 1,
            Circumstance.PEAKS: bool(self.peaks),
            Circumstance.TENSOR_CORES: any(rate in self.peaks for rate in TENSOR_RATES),
        }

    @property
    def work(self) -> pl.DataFrame:
        """Device activities of the whole trace."""
        return self.frames.of_trace.all_activities

    @cached_property
    def runs(self) -> pl.DataFrame:
        """The runs that kernels are taken from."""
        return self.frames.of_trace.kernel_runs.table

    @cached_property
    def framework(self) -> str:
        """`pytorch`, `jax`, `tensorflow`, ...; empty where it is not known or not the same for all."""
        names = {str(name).split()[0] for name in self.runs["framework"].drop_nulls() if str(name).split()}
        if not names and self.work["name"].unique().cast(pl.String).str.contains("at::native", literal=True).any():
            return "pytorch"  # its kernels say so where the file does not
        return names.pop() if len(names) == 1 else ""

    @cached_property
    def has_launches(self) -> bool:
        """Whether any device work has a runtime call that launched it."""
        return bool(self.work["call_start_ns"].is_not_null().any())

    @cached_property
    def replayed_share(self) -> float:
        """The part of device time that replays of graphs launched."""
        rows = self.work
        calls = column_at(self.frames.trace, "name", rows["parent_id"]).cast(pl.String)
        is_replayed = (
            (rows["kind"].cast(pl.String) == str(Kind.GRAPH))
            | (rows["attribution"].cast(pl.String) == str(Attribution.GRAPH_REPLAY))
            | calls.str.contains(_GRAPH_LAUNCH).fill_null(value=False)
        )
        total = total_of(rows["duration_ns"])
        return total_of(rows.filter(is_replayed)["duration_ns"]) / total if total else 0.0

    @cached_property
    def is_inference(self) -> bool:
        """Whether phases are known, and no device work is of a backward pass: then no gradients are reduced."""
        phases = {str(phase) for phase in self.work["phase"].drop_nulls().unique()}
        return bool(phases) and str(Phase.BACKWARD) not in phases

    @cached_property
    def modules_recorded(self) -> bool:
        """Whether layers are modules."""
        return str(LayerSource.MODULE) in set(self.frames.of_trace.layer_runs.table["layer_source"].drop_nulls())

    @cached_property
    def peaks(self) -> Mapping[str, float]:
        """Peak rates by quantity, of several devices the least; only what is known of the devices that were used."""
        rows = device_peaks(self.frames).group_by("quantity").agg(pl.col("peak").min())
        return {str(quantity): float(peak) for quantity, peak in rows.iter_rows()}

    @property
    def narrow_type(self) -> str:
        """The type of 2 bytes to compute in: BF16 where the device has it in its tensor cores, else FP16."""
        return "BF16" if "bf16_tensor" in self.peaks or not self.peaks else "FP16 with loss scaling"
