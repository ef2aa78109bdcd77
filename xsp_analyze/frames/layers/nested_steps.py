"""The mean step of a profile as each of its runs saw it: the model, the layers in it, their kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_analyze.frames.kernels.activities import device_activities, shapes_of
from xsp_analyze.frames.kernels.kernel_means import align_steps
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, calls_of_layers
from xsp_analyze.frames.model_time import timed_latency
from xsp_analyze.frames.steps import steps_of

if TYPE_CHECKING:
    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView

__all__ = ["LEVELS", "Timeline", "nested_timelines"]

LEVELS = ("model", "layers", "kernels")
"""What the runs of a profile are taken at, least disturbing first."""
_CALL = ("run_id", "step", *LAYER_KEY)
_KERNEL = ("name", "kind", "layer_index", "layer_name")


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run's mean step; times in ns from the step's start.

    `layers`: LAYER_KEY, start_ns, duration_ns (the whole call, with the layers in it), depth (0: in no other layer);
    `kernels`: name, kind, layer_index, layer_name, start_ns, duration_ns. Both in order of start, and empty where the
    run did not record them or marks no steps.
    """

    level: str
    duration_ns: float
    layers: pl.DataFrame
    kernels: pl.DataFrame


def nested_timelines(frames: StepView) -> list[Timeline]:
    """A timeline for every run that a level of the profile stands for; kernels are those of the serialised run."""
    view = frames.of_trace
    taken = (view.model_runs, view.layer_runs, view.serialised_runs)
    level_of = dict(zip(taken, LEVELS, strict=True))  # the deepest of a run's levels
    timelines = []
    for runs, level in level_of.items():
        duration = timed_latency(frames.of_trace, runs)
        if duration is not None:
            timelines.append(Timeline(level, duration, _layers(frames, runs), _kernels(frames, runs)))
    return timelines


def _starts(frames: StepView, runs: Runs) -> pl.DataFrame:
    """The steps of these runs that spans mark, as `steps_of`: times around the model's call have no start."""
    return runs.of(steps_of(frames.trace))


def _layers(frames: StepView, runs: Runs) -> pl.DataFrame:
    """The n-th call of a layer in one step and the n-th in another are averaged as one; without those that took none.

    A layer that was compiled away has no call that a box could show.
    """
    starts = _starts(frames, runs).select("run_id", "step", pl.col("start_ns").alias("step_ns"))
    calls = runs.of(calls_of_layers(frames.trace)).join(starts, on=["run_id", "step"])
    means = (
        calls.filter(pl.col("duration_ns").is_not_null())
        .sort("start_ns", "span_id")
        .with_columns(pl.int_range(pl.len()).over(_CALL).alias("nth"))
        .group_by(*LAYER_KEY, "nth", maintain_order=True)
        .agg(
            trimmed_mean(pl.col("start_ns") - pl.col("step_ns")).alias("start_ns"),
            trimmed_mean(pl.col("duration_ns")).alias("duration_ns"),
        )
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .sort("start_ns", -pl.col("duration_ns"), "layer_index")
    )
    return means.with_columns(pl.Series("depth", _depths(means), dtype=pl.Int64)).drop("nth")


def _depths(boxes: pl.DataFrame) -> list[int]:
    """How many boxes before it hold each box's middle; boxes are in order of start, the longest first."""
    depths: list[int] = []
    ends: list[float] = []
    for start, length in boxes.select("start_ns", "duration_ns").iter_rows():
        ends = [end for end in ends if end > start + length / 2]
        depths.append(len(ends))
        ends.append(start + length)
    return depths


def _kernels(frames: StepView, runs: Runs) -> pl.DataFrame:
    """Every execution of the mean step; empty in runs that are not asked for kernels."""
    starts = _starts(frames, runs)
    view = frames.of_trace
    work = view.all_activities if runs == view.kernel_runs else device_activities(view.trace)
    rows = runs.of(work) if runs == view.serialised_runs else work.clear()
    together = align_steps(rows.with_columns(shapes_of(view.trace, rows)), starts).join(
        starts.select("run_id", "step", pl.col("start_ns").alias("step_ns")), on=["run_id", "step"]
    )
    return (
        together.sort("execution", "step")
        .group_by("execution", maintain_order=True)
        .agg(
            *(pl.col(c).first() for c in _KERNEL),
            trimmed_mean(pl.col("start_ns") - pl.col("step_ns")).alias("start_ns"),
            pl.col("duration_ns").filter("kept").mean(),
        )
        .with_columns(pl.col("name", "kind", "layer_name").cast(pl.String))
        .sort("start_ns", "execution")
        .drop("execution")
    )
