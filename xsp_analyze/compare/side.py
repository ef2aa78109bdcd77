"""One side of a comparison: its captures, each with what it measured at each level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.compare import device_levels, levels
from xsp_analyze.compare.facts import Facts, facts
from xsp_analyze.compare.layer_pairs import family
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernel_means import kernel_executions
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.merge.kernels import kernel_work, template
from xsp_analyze.needs import holds
from xsp_model import Attribution, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.levels import Measured
    from xsp_analyze.trace.step_view import StepView

__all__ = ["Side"]


@dataclass(frozen=True)
class Side:
    """`name` is how messages call it; `views` are its captures of the same work; all times are divided by `per`."""

    name: str
    views: Sequence[StepView]
    per: float = 1.0

    @cached_property
    def facts(self) -> Facts:
        """What was run, on what, and how it was measured."""
        return facts(self.views)

    @cached_property
    def has_kernels(self) -> bool:
        """Whether every capture holds device work."""
        return all(holds(frames.of_trace, "kernel") for frames in self.views)

    @cached_property
    def model(self) -> list[Measured]:
        """Model latency in each capture."""
        return [self._scaled(levels.model(frames)) for frames in self.views]

    @cached_property
    def layers(self) -> list[Measured]:
        """Layers of each capture."""
        return [self._scaled(levels.layers(frames)) for frames in self.views]

    def layer_types(self, *, by_family: bool) -> list[Measured]:
        """Types of layers of each capture, or families of types."""
        return [levels.layer_types(layers, family if by_family else str) for layers in self.layers]

    @cached_property
    def kernels(self) -> list[Measured]:
        """Kernels of each capture."""
        return [self._scaled(device_levels.kernels(frames)) for frames in self.views]

    @cached_property
    def kernel_classes(self) -> list[Measured]:
        """Classes of kernels of each capture."""
        return [self._scaled(device_levels.kernel_classes(frames)) for frames in self.views]

    def operators(self, *, on_device: bool) -> list[Measured]:
        """Operators of each capture, by device time or by their own time on the host."""
        of = device_levels.operators if on_device else levels.operators_on_host
        return [self._scaled(of(frames)) for frames in self.views]

    def cells(self) -> pl.DataFrame:
        """Device time of the first capture by operator, class and kernel, see `device_levels.cells`."""
        return device_levels.cells(self.views[0]).with_columns(quotient(pl.col("ns"), self.per))

    def device_time(self) -> list[Measured]:
        """Sum of all device work in each capture: one row."""
        parts = []
        for measured in self.kernels:
            total = measured.mean_ns.sum(keepdims=True), measured.count.sum(keepdims=True)
            parts.append(
                levels.Measured(pl.DataFrame({"key": ["device_time"]}), *total, measured.steps.sum(axis=0)[None, :])
            )
        return parts

    def one_step(self) -> pl.DataFrame:
        """The kernels of one step in order of launch, with the columns of `merge.kernels.kernel_work`."""
        frames = self.views[0]
        return template(frames.of_trace.kernel_runs.of(kernel_work(frames.trace)))

    def work(self) -> pl.DataFrame:
        """Device time of a mean step in the first capture.

        Its columns: layer_index, layer_type, attribution, phase, kernel_class, name, ns.

        Of several processes side by side, what each of them takes on average, so that it compares with latency.
        """
        frames = self.views[0]
        latency = frames.once(latency_of_model)
        model_ns = float(latency["model_ns"][0] or 0) if latency.height else 0.0
        share = float(latency["latency_ns"][0]) / model_ns if model_ns else 1.0
        inside = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
        return frames.once(kernel_executions).select(
            pl.when(inside).then("layer_index").alias("layer_index"),
            *(pl.col(c).cast(pl.String) for c in ("layer_type", "attribution", "phase", "kernel_class")),
            pl.col("kernel_name").cast(pl.String).alias("name"),
            quotient(pl.col("duration_ns").cast(pl.Float64) * share, self.per).alias("ns"),
        )

    def check_steps(self, other: Side) -> None:
        """XspError unless the two are taken in the same way: both by steps or both whole."""
        if self.views[0].averaged != other.views[0].averaged:
            by_steps, total = (self, other) if self.views[0].averaged else (other, self)
            raise XspError(
                f"{by_steps.name} has steps and {total.name} has none, so a step would be compared with a whole trace",
                advice="Name the ranges that are steps with --model-range, or compare whole traces with --steps all",
            )

    def _scaled(self, measured: Measured) -> Measured:
        if self.per == 1.0:
            return measured
        return levels.Measured(
            measured.labels, measured.mean_ns / self.per, np.asarray(measured.count), measured.steps / self.per
        )
