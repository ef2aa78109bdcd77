"""Rules on what differs though it should not: steps in length, devices in work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.render.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["uneven_devices", "uneven_steps"]


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
    "uneven-devices",
    "Devices do unequal work",
    fires="The device that computes longest computes at least"
    f" {least.IMBALANCE:.0%} longer than devices do on average (only with several devices).",
    why="Devices that train one model wait for the slowest at every collective.",
    gain="Compute time of the busiest device less the mean over devices.",
    do="Spread the work evenly: split by cost instead of by count, pad or sort sequences, balance pipeline stages"
    " and experts; or look for a slow device.",
    source="Our choice.",
)
def uneven_devices(facts: Facts) -> Iterator[Observation]:
    """Compute time over devices."""
    times = facts.devices["compute_ns"].cast(pl.Float64)
    if len(times) < 2:  # noqa: PLR2004 (several)
        return
    longest, mean = float(times.max() or 0), float(times.mean() or 0)  # type: ignore[arg-type]
    if not longest or (longest - mean) / longest < least.IMBALANCE:
        return
    yield Observation(
        f"The busiest of {len(times)} devices computes for {duration(longest)}, the average one for {duration(mean)}.",
        (Evidence("busiest device", longest), Evidence("mean over devices", mean)),
        longest - mean,
        "B03",
    )
