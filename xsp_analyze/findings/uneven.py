"""Rules on steps: those that differ in length, those of a ramp-up, a host that runs ahead of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.findings.context import Circumstance
from xsp_analyze.render.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.facts import Facts

__all__ = ["host_ahead", "ramp_up", "uneven_steps"]


@rule(
    "uneven-steps",
    "Steps differ in length",
    fires=f"Of at least {least.FEW_STEPS} steps of a run, slowest and fastest differ by at least"
    f" {least.STEP_SPREAD:.0%} of the median.",
    why="A step that is now and then slower has a cause of its own: input, garbage collection, logging, clocks,"
    " another process, inputs of another shape.",
    gain="Mean step less the fastest step.",
    do="Compare a slow step with a fast one (xsp analyze --steps N); fix shapes and clocks, and move periodic work"
    " out of the step.",
    source="Our choice.",
    needs=(Circumstance.STEPS,),
)
def uneven_steps(facts: Facts) -> Iterator[Observation]:
    """Spread over the steps of the run where it is widest."""
    widest = None
    for durations in facts.frames.run_latencies["durations"].to_list() if facts.frames.averaged else []:
        lengths = pl.Series(durations, dtype=pl.Float64)
        if len(lengths) < least.FEW_STEPS:
            continue
        low, middle, high = (float(v) for v in (lengths.min(), lengths.median(), lengths.max()))  # type: ignore[arg-type]
        spread = (high - low) / middle if middle else 0.0
        if spread >= least.STEP_SPREAD and (widest is None or spread > widest[0]):
            widest = (spread, low, middle, high)
    if widest is None:
        return
    spread, low, middle, high = widest
    yield Observation(
        f"Steps take between {duration(low)} and {duration(high)}: {share(spread)} of the median.",
        (Evidence("fastest step", low), Evidence("median step", middle), Evidence("slowest step", high)),
        max(facts.latency_ns - low, 0.0),
        "A01",
    )


@rule(
    "ramp-up",
    "The first steps are longer",
    fires=f"Up to half of the steps, at the begin, are each at least {least.RAMP_UP:.0%} longer than the median of the"
    " others, which differ less.",
    why="In its first steps a program loads code, fills caches, tunes kernels and grows its pools of memory. A mean"
    " that holds them is the mean of nothing that goes on.",
    gain="None: this is about the numbers.",
    do="Warm up before recording (wait and warmup of the profiler's schedule), or look at later steps alone"
    " (--steps N).",
    source="Our choice.",
    needs=(Circumstance.STEPS,),
    explains=("uneven-steps",),
    on_trust=True,
)
def ramp_up(facts: Facts) -> Iterator[Observation]:
    """The longest prefix of a run's steps each of which is longer than what follows it."""
    for _, rows in facts.step_times.group_by("run_id", maintain_order=True):
        lengths = rows["latency_ns"].to_list()
        count_first = _longer_at_first(lengths)
        if not count_first:
            continue
        middle = float(pl.Series(lengths[count_first:]).median() or 0)  # type: ignore[arg-type]
        first = lengths[0] if count_first == 1 else sum(lengths[:count_first]) / count_first
        which = "The first step takes" if count_first == 1 else f"The first {count_first} steps take on average"
        yield Observation(
            f"{which} {duration(first)}, the others {duration(middle)} in the median.",
            (Evidence("first steps", first), Evidence("median of the others", middle)),
            None,
            "A01",
        )
        return


def _longer_at_first(lengths: Sequence[float]) -> int:
    """How many steps at the begin are a ramp-up; 0: none."""
    for number in range(1, len(lengths) // 2 + 1):
        others = pl.Series(lengths[number:], dtype=pl.Float64)
        middle = float(others.median() or 0)  # type: ignore[arg-type]
        spread = float(others.max()) - middle  # type: ignore[arg-type]
        if len(others) >= least.FEW_STEPS - 1 and all(
            length - middle >= max(least.RAMP_UP * middle, 2 * spread) for length in lengths[:number]
        ):
            return number
    return 0


@rule(
    "host-ahead",
    "The host runs ahead of the device",
    fires=f"At the end of the last step the device is at least {least.AHEAD_STEPS:g} steps behind the host, and further"
    " than it was at the end of the first.",
    why="The host only launches; nothing makes it wait, and the queue of work grows. That is how it should be, but the"
    " host's range around a step then says how long launching took, not how long the step took.",
    gain="None: this is about the numbers. The device is busy.",
    do="Read the latency of steps on the device, not the host's ranges around them. Nothing is to be mended.",
    source="Our choice.",
    needs=(Circumstance.STEPS, Circumstance.LAUNCHES),
    on_trust=True,
)
def host_ahead(facts: Facts) -> Iterator[Observation]:
    """How far the device is behind at the end of the first and the last step of a run."""
    for _, rows in facts.step_times.group_by("run_id", maintain_order=True):
        behind = (rows["end_ns"] - rows["host_end_ns"]).to_list()
        middle = float(rows["latency_ns"].median() or 0)  # type: ignore[arg-type]
        if rows.height < 2 or behind[-1] < least.AHEAD_STEPS * middle or behind[-1] <= behind[0]:  # noqa: PLR2004
            continue
        host = float((rows["host_end_ns"] - rows["host_start_ns"]).median() or 0)  # type: ignore[arg-type]
        yield Observation(
            f"At the end of the last step the device is {duration(behind[-1])} behind the host,"
            f" {behind[-1] / middle:.1f} steps; the host launches a step in {duration(host)}, the device takes"
            f" {duration(middle)}.",
            (Evidence("behind at first", behind[0]), Evidence("behind at last", behind[-1])),
            None,
            "A01",
        )
        return
