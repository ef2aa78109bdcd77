"""Rules on how the model is run: recomputation, the optimizer, the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.formulas import total_of
from xsp_analyze.text.units import count, duration, quantity, share
from xsp_model import Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["many_optimizer_kernels", "recompute", "small_batch"]


@rule(
    "recompute",
    "The forward pass is run again",
    fires=f"Activation checkpointing takes at least {limit.RECOMPUTE_SHARE:.0%} of device time.",
    why="Checkpointing trades device time for memory; where memory is to spare, the trade is a loss.",
    gain="Device time of recomputed work.",
    do="Checkpoint fewer layers, those that are cheap to compute and large to keep; see A04 for the memory.",
    source="Our choice; a full checkpoint costs about a quarter of device time.",
)
def recompute(facts: Facts) -> Iterator[Observation]:
    """Device work of phase recompute."""
    rows = facts.work.filter(pl.col("phase") == str(Phase.RECOMPUTE))
    time = total_of(rows["ns"])
    if facts.device_share(time) < limit.RECOMPUTE_SHARE:
        return
    yield Observation(
        f"Work that runs again in the backward pass takes {share(facts.device_share(time))} of device time.",
        (Evidence("recomputed", time), Evidence("all device time", facts.device_ns)),
        facts.longest(rows),
        "B06",
    )


@rule(
    "optimizer-kernels",
    "The optimizer runs a kernel for every parameter",
    fires=f"The optimizer launches at least {limit.OPTIMIZER_KERNELS} kernels a step.",
    why="Each parameter is updated by several tiny kernels, bound by their launches.",
    gain="Device time of the optimizer's chains of kernels less the longest of each step: a fused one has to remain.",
    do="fused=True or foreach=True in torch.optim, or a fused optimizer of a library.",
    source="Our choice; fused optimizers need a handful.",
)
def many_optimizer_kernels(facts: Facts) -> Iterator[Observation]:
    """Kernels of phase optimizer."""
    is_kernel = pl.col("kind") == str(Kind.KERNEL)
    rows = facts.work.filter(pl.col("phase") == str(Phase.OPTIMIZER), is_kernel)
    number = rows.height / facts.step_count
    if number < limit.OPTIMIZER_KERNELS:
        return
    time = facts.longest(rows)
    longest = float(rows["duration_ns"].max() or 0)  # type: ignore[arg-type]
    yield Observation(
        f"The optimizer launches {count(round(number))} kernels a step ({duration(time)} of device time).",
        (Evidence("kernels", round(number), ""), Evidence("device time", time)),
        max(time - longest, 0.0),
        "A10",
    )


@rule(
    "small-batch",
    "Larger batches still pay",
    fires="Of several batch sizes measured, the last doubling still raised throughput by more than"
    f" {limit.BATCH_GROWTH:.0%}.",
    why="The device is not yet full: each input costs less in a larger batch.",
    gain="Unknown beyond the largest batch measured.",
    do="Measure larger batches until throughput stops growing or memory is full (A01 then marks the optimal one).",
    source="XSP's definition of the optimal batch size.",
)
def small_batch(facts: Facts) -> Iterator[Observation]:
    """The two largest batch sizes of A01 of which one is twice the other."""
    table = facts.table("A01")
    rows = None if table is None else table.drop_nulls(["batch_size", "throughput_per_s"]).sort("batch_size")
    if rows is None or rows.height < 2:  # noqa: PLR2004 (two to compare)
        return
    rates = dict(rows.select("batch_size", "throughput_per_s").iter_rows())
    largest = max(rates)
    if largest % 2 or largest // 2 not in rates:
        return
    growth = rates[largest] / rates[largest // 2] - 1
    if growth <= limit.BATCH_GROWTH:
        return
    yield Observation(
        f"From batch {largest // 2} to {largest} throughput rose by {share(growth)}, to"
        f" {quantity(rates[largest], 'inputs/s')}.",
        (
            Evidence(f"inputs/s at {largest // 2}", rates[largest // 2], ""),
            Evidence(f"at {largest}", rates[largest], ""),
        ),
        None,
        "A01",
    )
