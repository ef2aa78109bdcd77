"""What the ledger says of replayed work and the run without graphs: what got layers, how, and what did not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.merge.matched import Matched
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.merge.replays.lanes import Lane
    from xsp_analyze.merge.replays.pairing import Pairing
    from xsp_analyze.merge.replays.work import ReplayedWork

__all__ = ["Match", "findings"]

_MAX_SHOWN = 3
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Match:
    """Two runs by the names that sentences give them, and by what they were compared."""

    replayed: str
    reference: str
    work: ReplayedWork
    by_step: bool
    min_rate: float

    @property
    def basis(self) -> str:
        """By what work is the same, as in `by name, grid, block and order in its step`."""
        return f"by {self.work.basis} and order in {'its step' if self.by_step else 'its graph'}"


def findings(match: Match, pairings: Sequence[Pairing], outcome: pl.DataFrame) -> list[Finding]:
    """A finding on each fate of replayed work; counts and device times add up to all of it."""
    in_layer, sure = pl.col("layer_id").is_not_null(), pl.col("partner_id").is_not_null()
    is_sure, has_partner = pl.col("is_sure"), pl.col("has_partner")
    there = f"in {match.reference}"
    got = f"replayed work of {match.replayed} has the layers of the same work {there}, {match.basis}"
    without = {
        f"replayed work whose counterpart {there} lies in no layer": sure & ~in_layer,
        f"replayed work that may be of several layers {there}": has_partner & ~is_sure,
        f"replayed work without a counterpart {there}": is_sure.is_not_null() & ~has_partner,
        _refusal(match, pairings): is_sure.is_null(),
    }
    return [
        _finding_of(LedgerKind.GRAPH_ALIGNED, got, outcome.filter(in_layer)),
        *(_finding_of(LedgerKind.GRAPH_NOT_ALIGNED, detail, outcome.filter(rows)) for detail, rows in without.items()),
    ]


def _finding_of(kind: LedgerKind, detail: str, rows: pl.DataFrame) -> Finding:
    return Finding(kind, detail, rows.height, duration_ns=int(rows["duration_ns"].sum()))


def _refusal(match: Match, pairings: Sequence[Pairing]) -> str:
    """How much of the largest unit that was refused matches, and what does not."""
    refused = [each for each in pairings if each.rate < match.min_rate]
    what = "steps" if match.by_step else "graphs"
    if not refused:
        return f"replayed work outside of the {what} that were compared with {match.reference}"
    largest = max(refused, key=lambda each: (each.shown is not None, each.unit.count * each.unit_count))
    return (
        f"{what} of {match.replayed} were given no layers, as their work and that of {match.reference} match "
        f"at {largest.rate:.3f}, less than {match.min_rate:g}{_differences(match, largest)}"
    )


def _differences(match: Match, pairing: Pairing) -> str:
    """The first mismatches, after a colon."""
    if pairing.shown is not None:
        shown = pairing.shown
        labels = _labels(match.work.ours, shown.ours), _labels(match.work.theirs, shown.theirs)
        return ": " + Matched("kernels", shown.alignment, *labels).differences()
    missing = [
        name
        for each in pairing.lanes
        for name, partner in zip(_labels(match.work.ours, each.lane), each.partner, strict=True)
        if partner < 0
    ]
    if not missing:
        return ""
    names = ", ".join(name[:_LONGEST_NAME] for name in missing[:_MAX_SHOWN])
    return f": {match.reference} nowhere has, in this order, {names}{' ...' if len(missing) > _MAX_SHOWN else ''}"


def _labels(work: pl.DataFrame, lane: Lane) -> list[str]:
    names = pl.DataFrame({"span_id": lane.spans[0]}).join(
        work.select("span_id", pl.col("name").cast(pl.String)), on="span_id", how="left", maintain_order="left"
    )
    return names["name"].to_list()
