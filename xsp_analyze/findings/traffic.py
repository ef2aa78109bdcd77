"""The rule that holds measured traffic against what shapes ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.kernels.roofline import BANDWIDTH
from xsp_analyze.text.units import count, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.findings.facts import Facts

__all__ = ["excess_traffic"]

_MAX_EVIDENCE = 3


@rule(
    "excess-traffic",
    "Operators move more bytes than their shapes ask for",
    fires=f"Operators that move at least {limit.EXCESS_RATIO:g} times the bytes that their shapes ask for, at"
    f" {limit.EXCESS_BANDWIDTH:.0%} of the memory's bandwidth or more, would save at least {limit.EXCESS_SHARE:.0%} of"
    " a step without the excess (needs hardware counters and shapes).",
    why="An operator has to read each operand and write each result once. What it moves beyond that is the cost of how"
    " it goes about it, or of how its operands lie in memory.",
    gain="Sum over these operators of time times the part of their bytes that is above the model's.",
    do="Look at the operands' strides: of a transposed or sliced tensor whole sectors are fetched for a few bytes"
    " (contiguous(), channels_last). Look for conversions of layout and copies within the operator, for tiles that read"
    " operands again because L2 does not hold them (another algorithm or order of blocks), for registers spilled to"
    " local memory (Nsight Compute: memory workload analysis), and for chains that one fused kernel could do.",
    source="Our choice; bytes as modelled in B11, DRAM traffic by counters.",
    basis=Basis.COUNTERS,
    needs=("kernel", "peak rates"),
    explains=("dominant-kernel",),
)
def excess_traffic(facts: Facts) -> Iterator[Observation]:
    """Rows of B27 with far more bytes than modelled, bound by memory."""
    table, bandwidth = facts.table("B27"), facts.context.peaks.get(BANDWIDTH)
    if table is None or bandwidth is None:
        return
    compared = pl.col("device_sum_ns") * pl.col("bytes_share")
    rows = table.with_columns(compared.alias("compared_ns")).with_columns(
        quotient(pl.col("compared_ns") * pl.col("excess_bytes"), pl.col("measured_bytes")).alias("lost_ns")
    )
    is_waiting = pl.col("byte_per_s") >= limit.EXCESS_BANDWIDTH * bandwidth
    above = rows.filter(pl.col("bytes_ratio") >= limit.EXCESS_RATIO, is_waiting).sort(-pl.col("lost_ns"), "operator")
    gain = total_of(above["lost_ns"]) / max(len(facts.context.runs), 1)
    if facts.share(gain) < limit.EXCESS_SHARE:
        return
    time = total_of(above["compared_ns"])
    rest = f"operators with {share(facts.device_share(time))} of device time move {limit.EXCESS_RATIO:g} times or more"
    worst = list(above.head(_MAX_EVIDENCE).iter_rows(named=True))
    yield Observation(
        f"{_named(worst[0])} moves {count(worst[0]['bytes_ratio'])} times the bytes that its shapes ask for; {rest}.",
        [Evidence(f"{_named(row)} ({count(row['bytes_ratio'])} times)", row["lost_ns"]) for row in worst],
        gain,
        "B27",
        worst[0]["operator"],
        coverage=facts.device_share(total_of(rows["compared_ns"])),
    )


def _named(row: Mapping[str, object]) -> str:
    layer = row["layer_name"]
    return f"{row['operator']} in {layer}" if layer is not None else str(row["operator"])
