"""Rules on steps: those that differ in length, those of a ramp-up, a host that runs ahead of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.formulas import mean_of
from xsp_analyze.frames.model_time import load_tests
from xsp_analyze.frames.serving_steps import batch_of
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.text.units import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts
    from xsp_analyze.trace.step_view import StepView

__all__ = ["host_ahead", "ramp_up", "uneven_steps"]


@rule(
    "uneven-steps",
    "Steps differ in length",
    fires=f"Of at least {limit.FEW_STEPS} steps of a run (of a server's those of its commonest batch), slowest"
    " and fastest differ by at least"
    f" {limit.STEP_SPREAD:.0%} of the median, and the mean step is at least {limit.STEP_GAIN:.0%} above the fastest."
    " Not of queries that waited in a load test's queue.",
    why="A step that is now and then slower has a cause of its own: input, garbage collection, logging, clocks,"
    " another process, inputs of another shape.",
    gain="Mean step less the fastest step.",
    do="Compare a slow step with a fast one (xsp analyze --steps N); fix shapes and clocks, and move periodic work"
    " out of the step.",
    source="Our choice.",
    needs=("steps",),
)
def uneven_steps(facts: Facts) -> Iterator[Observation]:
    """Spread over the steps of the run where it is widest."""
    widest = None
    queued = any(
        test.has_queueing for test in facts.frames.of_trace.once(load_tests)
    )  # how long a query waited is of its load
    for lengths, part in _lengths(facts.frames) if facts.frames.averaged and not queued else ():
        if len(lengths) < limit.FEW_STEPS:
            continue
        low, middle, high = (float(v) for v in (lengths.min(), lengths.median(), lengths.max()))  # type: ignore[arg-type]
        spread = (high - low) / middle if middle else 0.0
        if spread >= limit.STEP_SPREAD and (widest is None or spread > widest[0]):
            mean = facts.latency_ns if part == 1 else float(lengths.mean() or 0)  # type: ignore[arg-type]
            widest = (spread, low, middle, high, (mean - low) * part)
    if widest is None:
        return
    spread, low, middle, high, gain = widest
    gain = max(gain, 0.0)
    if facts.share(gain) < limit.STEP_GAIN:
        return
    yield Observation(
        f"Steps take between {duration(low)} and {duration(high)}: {share(spread)} of the median.",
        (Evidence("fastest step", low), Evidence("median step", middle), Evidence("slowest step", high)),
        gain,
        "A01",
    )


def _lengths(frames: StepView) -> Iterator[tuple[pl.Series, float]]:
    """Latencies of each run's steps, and their part of all; of a server's those of its commonest batch.

    Steps with other batches do other work, and may well take longer.
    """
    batches = batch_of(frames.of_trace.model_runs.of(frames.steps), frames.of_trace.serving_steps)
    alike = ["run_id", "serving_phase", "requests", "tokens"]
    for _, steps in batches.group_by("run_id", maintain_order=True):
        rows = max((rows for _, rows in steps.group_by(alike, maintain_order=True)), key=lambda rows: rows.height)
        yield rows["duration_ns"].cast(pl.Float64), rows.height / steps.height


@rule(
    "ramp-up",
    "The first steps are no steps like the others",
    fires="Steps at the begin of a run are left out of means, as its latency had not settled yet.",
    why="In its first steps a program loads code, fills caches, tunes kernels, grows its pools of memory and fills the"
    " queue of launches. A mean that holds them is the mean of nothing that goes on.",
    gain="None: this is about the numbers.",
    do="Warm up before recording (wait and warmup of the profiler's schedule). To see what the first steps did, look at"
    " them alone: --steps N.",
    source="What a mean leaves out is decided with latency itself (ADR 0015).",
    needs=("steps",),
    explains=("uneven-steps",),
    on_trust=True,
)
def ramp_up(facts: Facts) -> Iterator[Observation]:
    """Steps that hold work and are not among those that a mean is taken over."""
    if not facts.frames.averaged:
        return
    steps = facts.frames.steps
    left_out = facts.frames.worked_steps.join(steps, on=["run_id", "step"], how="anti")
    if left_out.is_empty():
        return
    first = mean_of(left_out["duration_ns"])
    middle = float(steps["duration_ns"].median() or 0)  # type: ignore[arg-type]
    number = left_out.height
    which = "The first step takes" if number == 1 else f"{number} steps at the begin take on average"
    yield Observation(
        f"{which} {duration(first)}, the others {duration(middle)} in the median: not counted in means.",
        (Evidence("first steps", first), Evidence("median of the others", middle)),
        None,
        "A01",
    )


@rule(
    "host-ahead",
    "The host runs ahead of the device",
    fires=f"At the end of the last step the device is at least {limit.AHEAD_STEPS:g} steps behind the host, and further"
    " than it was at the end of the first.",
    why="The host only launches; nothing makes it wait, and the queue of work grows. That is how it should be, but the"
    " host's range around a step then says how long launching took, not how long the step took.",
    gain="None: this is about the numbers. The device is busy.",
    do="Read the latency of steps on the device, not the host's ranges around them. Nothing is to be mended.",
    source="Our choice.",
    needs=("steps", "launches"),
    on_trust=True,
)
def host_ahead(facts: Facts) -> Iterator[Observation]:
    """How far the device is behind at the end of the first and the last step of a run."""
    on_device = pl.col("basis").is_in([str(StepBasis.DEVICE_PERIOD), str(StepBasis.DEVICE_END)])
    steps = facts.frames.worked_steps.filter(on_device).sort("run_id", "start_ns")
    for _, rows in steps.group_by("run_id", maintain_order=True):
        behind = (rows["end_ns"] - rows["start_ns"] - rows["host_ns"]).to_list()
        middle, host = (float(rows[column].median() or 0) for column in ("duration_ns", "host_ns"))  # type: ignore[arg-type]
        if rows.height < 2 or behind[-1] < limit.AHEAD_STEPS * middle or behind[-1] <= behind[0]:  # noqa: PLR2004
            continue
        yield Observation(
            f"At the end of the last step the device is {duration(behind[-1])} behind the host,"
            f" {count(behind[-1] / middle)} steps; the host launches a step in {duration(host)}, the device takes"
            f" {duration(middle)}.",
            (Evidence("behind at first", behind[0]), Evidence("behind at last", behind[-1])),
            None,
            "A01",
        )
        return
