"""Where findings are: the device, the framework, the phase, and what the trace records."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernels.roofline import known_peaks
from xsp_model import LayerSource, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.step_view import StepView

__all__ = ["Context"]


class Context:
    """Facts on the trace that decide which findings make sense."""

    def __init__(self, frames: StepView) -> None:
        self.frames = frames

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
    def is_inference(self) -> bool:
        """Whether phases are known, and no device work is of a backward pass: then no gradients are reduced."""
        phases = {str(phase) for phase in self.work["phase"].drop_nulls().unique()}
        return bool(phases) and str(Phase.BACKWARD) not in phases

    @cached_property
    def modules_recorded(self) -> bool:
        """Whether layers are modules."""
        return str(LayerSource.MODULE) in set(self.frames.of_trace.layer_runs.table["layer_source"].drop_nulls())

    @property
    def peaks(self) -> Mapping[str, float]:
        """Peak rates by quantity, of several devices the least; only what is known of the devices that were used."""
        return self.frames.of_trace.once(known_peaks)

    @property
    def narrow_type(self) -> str:
        """The type of 2 bytes to compute in: BF16 where the device has it in its tensor cores, else FP16."""
        return "BF16" if "bf16_tensor" in self.peaks or not self.peaks else "FP16 with loss scaling"
