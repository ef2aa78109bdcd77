"""The rule on elementwise kernels that could be one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.group_ids import group_ids, run_starts, sort_by
from xsp_analyze.text.units import count, duration
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["unfused_chains"]

_ELEMENTWISE = [str(c) for c in (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.MEMSET)]
"""Classes of kernels that do one operation an element, or only move or set it."""

_NOT_FUSIBLE = r"^triton_|fusion|^__amd_rocclr_"
"""Names of what a compiler has fused already (Triton's of torch.compile, XLA's), and of ROCm's own copies."""

_LANE = ("run_id", "device_id", "stream_id", "step")


@rule(
    "unfused-chains",
    "Elementwise kernels run one after the other",
    fires=f"Fusing each chain of neighbouring elementwise kernels would save at least {limit.CHAIN_SHARE:.0%} of device"
    " time.",
    why="Each elementwise kernel reads and writes whole tensors. Fused, a chain reads and writes them once.",
    gain="Of each chain of neighbours on a stream, its time less that of its longest kernel: one pass over the data has"
    " to remain.",
    do="torch.compile, or fused versions of the operator (GELU, dropout and add, LayerNorm, optimizers).",
    source="Our choice; classes of kernels as docs/kernel-classes.md has them, without what a compiler has fused.",
    needs=("timeline", "launches"),
    explains=("dominant-kernel",),
)
def unfused_chains(facts: Facts) -> Iterator[Observation]:
    """Runs of elementwise kernels on one stream; a chain is at least two."""
    chains = _chains(facts.work, _is_unfused(facts))
    if chains.is_empty():
        return
    saved = facts.longest(chains)
    if facts.device_share(total_of(chains["ns"])) < limit.CHAIN_SHARE:
        return
    number, length = chains.height / facts.step_count, total_of(chains["length"]) / chains.height
    yield Observation(
        f"{count(round(number, 1))} chains of {count(round(length, 1))} elementwise kernels on average take"
        f" {duration(total_of(chains['all_ns']))} of device time.",
        (Evidence("in chains", total_of(chains["all_ns"])), Evidence("saved if fused", saved)),
        saved,
        "A10",
        "elementwise",
    )


def _is_unfused(facts: Facts) -> pl.Expr:
    is_kernel = pl.col("kind") == str(Kind.KERNEL)
    return is_kernel & pl.col("kernel_class").cast(pl.String).is_in(_ELEMENTWISE) & ~facts.named(_NOT_FUSIBLE)


def _chains(work: pl.DataFrame, is_one: pl.Expr) -> pl.DataFrame:
    """One row a chain of neighbours: run_id, device_id, length, all_ns (its time), ns (that less its longest)."""
    rows = work.select(*_LANE, "start_ns", "even_ns", is_one.alias("is_one"))
    code, size = group_ids(rows.select(_LANE), ordered=True)
    order = sort_by(code, size)  # work stands in order of start
    ones = rows["is_one"].to_numpy()[order]
    starts = run_starts(code[order], ones)
    chain = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    neighbours: pl.DataFrame = rows.select("run_id", "device_id", "even_ns")[order[ones]]
    return (
        neighbours.with_columns(pl.Series("chain", chain[ones]))
        .group_by("chain", "run_id", "device_id", maintain_order=True)
        .agg(
            pl.len().alias("length"),
            pl.col("even_ns").sum().alias("all_ns"),
            (pl.col("even_ns").sum() - pl.col("even_ns").max()).alias("ns"),
        )
        .filter(pl.col("length") > 1)
    )
