"""Rules that hold kernels and layers against their roof; they need hardware counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.findings.shapes import wide_types
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.kernels.measured_work import MEASURED
from xsp_analyze.text.shown import short_name
from xsp_analyze.text.units import share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["below_roof", "memory_bound", "unreached"]

_MAX_EVIDENCE = 3


def _measured(facts: Facts, identity: str) -> pl.DataFrame | None:
    """The rows of A09 or A14 whose flop and bytes counters measured; models have rules of their own (`shapes`)."""
    table = facts.table(identity)
    return None if table is None else table.filter(pl.col("work_basis") == MEASURED)


def unreached(facts: Facts, which: pl.Expr) -> float | None:
    """Time above what the roof allows, of A09's kernels that were measured; None where no roof is known."""
    table = _measured(facts, "A09")
    rows = None if table is None else table.filter(which).drop_nulls("roof_share")
    if rows is None or rows.is_empty():
        return None
    best = rows.sort("roof_share", descending=True).unique("execution", keep="first", maintain_order=True)
    return float((best["duration_ns"] * (1 - best["roof_share"].clip(0, 1))).sum())


@rule(
    "below-roof",
    "Kernels reach little of what the device can do",
    fires=f"Kernels that reach less than {limit.BELOW_ROOF:.0%} of their roof take at least"
    f" {limit.ROOF_TIME_SHARE:.0%} of device time (needs hardware counters).",
    why="Neither arithmetic nor memory bandwidth limits such a kernel, but latency, too little parallel work, uneven"
    " blocks or instructions that are no flops.",
    gain="Sum over these kernels of time times (1 - share of the roof reached).",
    do="Larger batches or problem sizes for more parallel work, another algorithm or tile size, fewer and larger"
    " kernels; Nsight Compute says what stalls them.",
    source="Our choice; roofline model of Williams, Waterman and Patterson (2009).",
    basis=Basis.COUNTERS,
    needs=("kernel", "peak rates"),
    explains=("dominant-kernel", "far-from-peak"),
)
def below_roof(facts: Facts) -> Iterator[Observation]:
    """Kernels of A09 far below their roof; of a kernel in several precisions its best counts."""
    table = _measured(facts, "A09")
    if table is None:
        return
    best = (
        table.drop_nulls("roof_share")
        .sort("roof_share", descending=True)
        .unique("execution", keep="first", maintain_order=True)
    )
    low = best.filter(pl.col("roof_share") < limit.BELOW_ROOF)
    time = total_of(low["duration_ns"])
    if facts.device_share(time) < limit.ROOF_TIME_SHARE:
        return
    lost = pl.col("duration_ns") * (1 - pl.col("roof_share").clip(0, 1))
    worst = low.group_by("kernel_name").agg(lost.sum().alias("lost")).sort(-pl.col("lost"), "kernel_name")
    yield Observation(
        f"Kernels with {share(facts.device_share(time))} of device time reach less than {share(limit.BELOW_ROOF)} of"
        " their roof.",
        [Evidence(short_name(name), value) for name, value in worst.head(_MAX_EVIDENCE).iter_rows()],
        total_of(low.select(lost).to_series()),
        "A09",
    )


@rule(
    "memory-bound",
    "Layers are bound by memory bandwidth",
    fires=f"Layers below the ridge of their roofline take at least {limit.MEMORY_BOUND_SHARE:.0%} of device time;"
    " without hardware counters: operators on types of 4 bytes, whose shapes say that they use at least"
    f" {limit.AT_BANDWIDTH:.0%} of the bandwidth, would save at least {limit.TYPE_SHARE:.0%} of the step with types of"
    " 2 bytes.",
    why="These layers wait for device memory; a faster arithmetic unit would not help them.",
    gain="With counters, the sum over these layers of time times (1 - share of the roof reached): what is left without"
    " less traffic. By shapes, half of the time of the operators on types of 4 bytes, whose traffic would be half."
    " Fusion lowers the traffic too, and can save more.",
    do="Compute in a type of 2 bytes, fuse neighbouring operators (torch.compile, fused kernels), avoid copies of"
    " layout, make batches larger where weights are most of the traffic.",
    source="Most of device time; the ridge is the device's peak over its bandwidth. The rest is our choice.",
    basis=Basis.COUNTERS,
    needs=("kernel",),
    explains=("dominant-kernel", "dominant-layer"),
)
def memory_bound(facts: Facts) -> Iterator[Observation]:
    """Memory bound layers of A14, each in the precision that it does most in; else operators by their shapes."""
    table = _measured(facts, "A14")
    main = None if table is None else (
        table.drop_nulls("bound")
        .sort("flop_count", descending=True, nulls_last=True)
        .unique("layer_index", keep="first", maintain_order=True)
    )  # fmt: skip
    if main is None or main.is_empty():
        yield from wide_types(facts)
        return
    bound = main.filter(pl.col("bound") == "memory")
    time = total_of(bound["kernel_duration_ns"])
    if facts.device_share(time) < limit.MEMORY_BOUND_SHARE:
        return
    left = pl.col("kernel_duration_ns") * (1 - pl.col("roof_share").fill_null(1).clip(0, 1))
    worst = bound.sort("kernel_duration_ns", descending=True).head(_MAX_EVIDENCE)
    yield Observation(
        f"{bound.height} of {main.height} layers are memory bound; they take {share(facts.device_share(time))} of"
        " device time.",
        [Evidence(str(n), t) for n, t in worst.select("layer_name", "kernel_duration_ns").iter_rows()],
        total_of(bound.select(left).to_series()),
        "A14",
        coverage=facts.device_share(total_of(main["kernel_duration_ns"])),
    )
