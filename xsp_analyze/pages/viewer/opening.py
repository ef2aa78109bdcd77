"""Where the viewer opens: the step whose length is nearest to the median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView

__all__ = ["MedianStep", "drawn_steps", "median_step"]


@dataclass(frozen=True, slots=True)
class MedianStep:
    """A step with its latency and the basis of that; its spans, the host's among them, are from `begin` to `end` ns."""

    number: int
    latency_ns: int
    basis: str
    begin: int
    end: int


def median_step(frames: StepView) -> MedianStep | None:
    """Of the steps that the frames average, in the runs that kernels are taken from; None where there are none."""
    runs = frames.of_trace.kernel_runs
    taken = _nearest(frames, runs)
    if taken is None:
        return None
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    of_step = runs.scan("spans").filter(pl.col("step") == taken["step"])
    begin, until = of_step.select(pl.col("start_ns").min(), end.alias("end")).collect().row(0)
    if begin is None or until is None:  # timed around the model's call, without a span
        begin, until = taken["begin_ns"], taken["end_ns"]
    return MedianStep(taken["step"], taken["duration_ns"], taken["basis"], begin, until)


def _nearest(frames: StepView, runs: Runs) -> dict[str, Any] | None:
    steps = runs.of(frames.steps) if frames.averaged else frames.steps.head(0)
    if steps.is_empty():
        return None
    times = steps.group_by("step").agg(
        pl.col("duration_ns").max(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col("basis").last()
    )
    distance = (pl.col("duration_ns") - pl.col("duration_ns").median()).abs()
    return times.sort(distance, "step").row(0, named=True)


def drawn_steps(frames: StepView) -> list[dict[str, int]]:
    """Every step that a span marks: number, run, begin and end in ns, in order of time."""
    steps = frames.of_trace.process_steps.group_by("run_id", "step").agg(
        pl.col("begin_ns").min().alias("begin"), pl.col("end_ns").max().alias("end")
    )
    ordered = steps.sort("begin", "run_id", "step").rename({"run_id": "run", "step": "number"})
    return ordered.select("number", "run", "begin", "end").to_dicts()
