"""Rules on run sets: whether its runs, taken one after the other, are of one machine in one state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["runs_disagree"]

_PROFILED = {"layers": "level ML", "kernels": "level MLG", "kernels, serialised": "level MLG, serialised"}


@dataclass(frozen=True)
class _Steps:
    """A run's steps in ns: the median, and what the middle half lies between."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Of the middle half, over the median."""
        return (self.high - self.low) / self.median


@rule(
    "runs-disagree",
    "Runs of the set disagree",
    fires=f"A step without a profiler takes at least {limit.SLOWER_WITHOUT:.0%} longer than one under a profiler, and"
    " the middle halves of both runs' steps lie apart; or the middle half of the steps without a profiler spreads"
    f" over {limit.RUN_SPREAD:.0%} of their median. Both of at least {limit.FEW_STEPS} steps.",
    why="A profiler only adds time, so that the runs were not of the same machine in the same state. Numbers that are"
    " put together from both are wrong by that factor: shares of latency, overhead of profiling, throughput.",
    gain="None: this is about the numbers.",
    do="Collect the set again with more warm-up (--warmup): a GPU that was idle needs seconds to raise its clocks, and"
    " the first run on a machine loads files and chooses kernels. See that nothing else uses the GPU or its CPUs"
    " (nvidia-smi), and whether the GPU throttled: run.json has its clocks. Lock clocks where you may.",
    source="Our choice: runs of one machine in one state agree within a few percent.",
    on_trust=True,
)
def runs_disagree(facts: Facts) -> Iterator[Observation]:
    """The model's run against each profiled one: the one that it is slowest beside."""
    labels = reversed(list(facts.frames.of_trace.run_labels.items()))
    runs = {label: run for run, label in labels}  # of several that were made for one thing the first, as everywhere
    model = _steps(facts, runs["model"]) if "model" in runs else None
    if model is None:
        return
    others = {role: _steps(facts, runs[role]) for role in _PROFILED if role in runs}
    faster = {role: steps for role, steps in others.items() if steps and _is_slower(model, steps)}
    if faster:
        role, steps = min(faster.items(), key=lambda one: one[1].median)
        yield Observation(
            f"A step takes {duration(model.median)} without a profiler, {share(model.median / steps.median - 1)} longer"
            f" than the {duration(steps.median)} under one ({_PROFILED[role]}).",
            (Evidence("without", model.median), Evidence("with", steps.median)),
            None,
            "B02",
        )
    if model.spread >= limit.RUN_SPREAD:
        yield Observation(
            f"The middle half of the steps without a profiler spreads over {share(model.spread)} of their median.",
            (Evidence("a quarter is below", model.low), Evidence("a quarter is above", model.high)),
            None,
            "A01",
        )


def _is_slower(model: _Steps, profiled: _Steps) -> bool:
    return model.median >= (1 + limit.SLOWER_WITHOUT) * profiled.median and model.low > profiled.high


def _steps(facts: Facts, run: int) -> _Steps | None:
    """As the run timed them itself, else by the spans of its steps; None of too few."""
    timed = facts.frames.trace.frame("step_times").filter(pl.col("run_id") == run)
    rows = timed if timed.height else facts.frames.of_trace.all_steps.filter(pl.col("run_id") == run)
    durations = rows["duration_ns"].drop_nulls()
    if len(durations) < limit.FEW_STEPS:
        return None
    low, median, high = (float(durations.quantile(part, "linear") or 0) for part in (0.25, 0.5, 0.75))
    return _Steps(median, low, high) if median else None
