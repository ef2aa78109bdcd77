"""Rules on kernels whose blocks do not fill the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.formulas import total_of
from xsp_analyze.text.shown import short_name
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["small_grids", "tail_waste"]

_MAX_EVIDENCE = 3


@rule(
    "tail-waste",
    "Kernels end in a wave that does not fill the device",
    fires=f"Kernels that lose at least {limit.TAIL_SHARE:.0%} of their time to a last wave that is not full would save"
    f" at least {limit.TAIL_WASTE_SHARE:.0%} of a step with full waves, as estimated.",
    why="A device runs the blocks of a kernel in waves, as many at once as fit. The last wave takes as long as a full"
    " one, however few blocks it has, and with few waves that is a large part of the kernel.",
    gain="Sum over these kernels of time times (ceil(waves) - waves) / ceil(waves): all blocks taken as equally long."
    " Kernels that run beside others on the device do not count.",
    do="Another tile size, split-K or a persistent kernel (stream-K), as autotuning finds them (torch.compile with"
    " max-autotune, cudnn.benchmark); batches and sequence lengths whose blocks fill waves; independent work on a"
    " second stream.",
    source="Our choice; the rule on launch statistics of Nsight Compute speaks of the same.",
    basis=Basis.LAUNCHES,
    needs=("timeline",),
    explains=("dominant-kernel",),
)
def tail_waste(facts: Facts) -> Iterator[Observation]:
    """Kernels of few waves, each alone on its device."""
    kernels, coverage = _with_value(facts, "tail_share")
    wasteful = kernels.filter(pl.col("tail_share") >= limit.TAIL_SHARE)
    lost = wasteful.with_columns((pl.col("ns") * pl.col("tail_share")).alias("lost_ns"))
    gain = facts.longest(lost, "lost_ns")
    if facts.share(gain) < limit.TAIL_WASTE_SHARE:
        return
    time = facts.longest(lost)
    yield Observation(
        f"Kernels that take {duration(time)} end in a wave that is not full, and lose {share(gain / time)} of their"
        " time to it, as estimated.",
        _worst(lost),
        gain,
        "B26",
        coverage=coverage,
    )


@rule(
    "small-grids",
    "Kernels leave multiprocessors without work",
    fires=f"Kernels of {limit.SMALL_GRID_NS / 1000:g} µs and more with fewer blocks than the device has"
    f" multiprocessors would save at least {limit.SMALL_GRID_SHARE:.0%} of a step if they used all, as estimated.",
    why="A block runs on one multiprocessor: the others have nothing to do.",
    gain="Sum over these kernels of time times the part of the multiprocessors without a block. Communication, and"
    " kernels that run beside others on the device, do not count.",
    do="More blocks: smaller tiles, split-K or split reductions, larger batches, several small problems in one kernel"
    " (batched or grouped products); or run independent kernels side by side on several streams.",
    source="Our choice; the rule on small grids of Nsight Compute estimates the same.",
    basis=Basis.LAUNCHES,
    needs=("timeline",),
    explains=("dominant-kernel",),
)
def small_grids(facts: Facts) -> Iterator[Observation]:
    """Kernels that hold the device for long with few blocks, each alone on its device."""
    kernels, coverage = _with_value(facts, "unused_share")
    small = kernels.filter(pl.col("unused_share") > 0, pl.col("duration_ns") >= limit.SMALL_GRID_NS)
    lost = small.with_columns((pl.col("ns") * pl.col("unused_share")).alias("lost_ns"))
    gain = facts.longest(lost, "lost_ns")
    if facts.share(gain) < limit.SMALL_GRID_SHARE:
        return
    time = facts.longest(lost)
    yield Observation(
        f"Kernels that take {duration(time)} use {share(1 - gain / time)} of the device's multiprocessors on average.",
        _worst(lost),
        gain,
        "B26",
        coverage=coverage,
    )


def _with_value(facts: Facts, column: str) -> tuple[pl.DataFrame, float]:
    """The lone kernels of which the column is known, and of what part of their time it is."""
    kernels = facts.lone_kernels
    rows = kernels.drop_nulls(column)
    total = total_of(kernels["ns"])
    return rows, total_of(rows["ns"]) / total if total else 1.0


def _worst(lost: pl.DataFrame) -> list[Evidence]:
    names = lost.group_by(pl.col("name").cast(pl.String)).agg(pl.col("lost_ns").sum())
    rows = names.sort(-pl.col("lost_ns"), "name").head(_MAX_EVIDENCE).iter_rows()
    return [Evidence(f"lost in {short_name(name)}", time) for name, time in rows]
