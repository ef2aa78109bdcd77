"""Which steps of a trace an analysis takes, and how values of several steps become one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import trimmed_mean
from xsp_model import Kind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = [
    "StepChoice",
    "StepMode",
    "all_steps",
    "choose_steps",
    "mean_over_steps",
    "step_counts",
    "steps_of",
    "without_stubs",
]

_MAX_NAMED = 8


class StepMode(StrEnum):
    """How steps are treated."""

    ALL = "all"  # the whole trace as one
    MEAN = "mean"  # the mean step
    EACH = "each"  # one answer a step
    ONE = "one"  # a single step


@dataclass(frozen=True, slots=True)
class StepChoice:
    """What `--steps` says; `number` is given exactly for ONE."""

    mode: StepMode
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> StepChoice:
        """The choice that `all`, `mean`, `each` or a step's number stands for; XspError for anything else."""
        if text in {"all", "mean", "each"}:
            return cls(StepMode(text))
        try:
            return cls(StepMode.ONE, int(text))
        except ValueError:
            raise XspError(
                f"{text!r} is no choice of steps", advice="Choose all, mean, each or the number of a step"
            ) from None

    def __str__(self) -> str:
        return str(self.number) if self.mode is StepMode.ONE else str(self.mode)


def steps_of(trace: Trace) -> pl.DataFrame:
    """One row a run and step, in that order: run_id, step, start_ns, duration_ns.

    Where several processes of one run ran the step side by side, it lasted as long as the slowest of them.
    """
    return (
        trace.scan("spans")
        .filter(
            pl.col("level") == str(Level.MODEL),
            pl.col("kind") == str(Kind.STEP),
            pl.col("step").is_not_null(),
            pl.col("duration_ns").is_not_null(),
        )
        .group_by("run_id", "step")
        .agg(pl.col("start_ns").min(), pl.col("duration_ns").max())
        .sort("run_id", "step")
        .collect()
    )


def all_steps(trace: Trace, *, timed_first: Sequence[int] = ()) -> pl.DataFrame:
    """The steps of all runs, as `steps_of`; where a run has no spans of steps, those timed around the model's call.

    In the runs of `timed_first` the latter go first: they were timed without a profiler.
    """
    spans = steps_of(trace)
    timed = trace.frame("step_times").with_columns(pl.lit(0, pl.Int64).alias("start_ns")).select(spans.columns)
    spanned = spans.filter(
        ~pl.col("run_id").is_in(list(timed_first)) | ~pl.col("run_id").is_in(timed["run_id"].implode())
    )
    rest = timed.join(spanned, on="run_id", how="anti")
    return pl.concat([spanned, rest]).sort("run_id", "step")


def choose_steps(requested: StepChoice | str | None, steps: pl.DataFrame) -> StepChoice:
    """The choice made explicit: `mean` where there are steps and nothing was said; XspError where it cannot be met."""
    if requested is None:
        return StepChoice(StepMode.ALL if steps.is_empty() else StepMode.MEAN)
    choice = StepChoice.parse(requested) if isinstance(requested, str) else requested
    if choice.mode is StepMode.ALL:
        return choice
    if steps.is_empty():
        raise XspError(
            "the trace has no steps",
            advice="Take it as a whole with --steps all, or name the ranges that are steps with --model-range",
        )
    numbers = steps["step"].unique().sort().to_list()
    if choice.mode is StepMode.ONE and choice.number not in numbers:
        raise XspError(f"the trace has no step {choice.number}", advice=f"Its steps are {_listed(numbers)}")
    return choice


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > _MAX_NAMED:
        return f"{', '.join(map(str, numbers[:_MAX_NAMED]))}, ... {numbers[-1]}"
    return ", ".join(map(str, numbers))


def without_stubs(steps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """The steps that a mean is taken over: in runs with device work in steps, only those that hold some.

    Profilers open a last step that they close at once (50 us without a launch); it would halve every mean of two.
    """
    worked = activities.select("run_id", "step").drop_nulls().unique()
    idle = steps.join(worked, on="run_id", how="semi").join(worked, on=["run_id", "step"], how="anti")
    return steps.join(idle, on=["run_id", "step"], how="anti", maintain_order="left")


def step_counts(steps: pl.DataFrame) -> pl.DataFrame:
    """How many steps each run has: run_id, step_count."""
    return steps.group_by("run_id").agg(pl.len().cast(pl.Int64).alias("step_count")).sort("run_id")


def mean_over_steps(
    values: pl.DataFrame, steps: pl.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> pl.DataFrame:
    """What a mean step holds of each key: per run the trimmed mean over its steps, then the sum over runs.

    `values` has one row a run_id, step and key, in steps of `steps` only. A key present in k of a run's n steps
    counts k / n of its mean, so that sums over keys are what a step holds on average. Measures become Float64.
    """
    present = pl.len() / pl.col("step_count").first()
    return (
        values.join(step_counts(steps), on="run_id", how="inner", maintain_order="left")
        .group_by("run_id", *keys, maintain_order=True)
        .agg((trimmed_mean(pl.col(m)) * present).alias(m) for m in measures)
        .group_by(*keys, maintain_order=True)
        .agg(pl.when(pl.col(m).count() > 0).then(pl.col(m).sum()).alias(m) for m in measures)
    )
