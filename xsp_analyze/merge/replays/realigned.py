"""The tables of a replayed run with the layers, phases and launches of the same work in a run without graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.merge.comparable import name_of
from xsp_analyze.merge.replays.lanes import distinct_units
from xsp_analyze.merge.replays.outcome import Match, findings
from xsp_analyze.merge.replays.pairing import by_order, by_search
from xsp_analyze.merge.replays.work import key_work
from xsp_model import Attribution, AttributionBasis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.merge.replays.pairing import LanePairs, Pairing
    from xsp_analyze.merge.replays.work import ReplayedWork, Run
    from xsp_model import Finding, Trace

__all__ = ["Realigned", "holds_replays", "realign_replays"]

_STEP = ("run_id", "process_id", "step")
_RUN = ("run_id", "process_id")
_LAUNCH = ("run_id", "parent_id")
_PAIRS = {"span_id": pl.Int64, "partner_id": pl.Int64, "is_sure": pl.Boolean}


@dataclass(frozen=True, slots=True)
class Realigned:
    """Tables of the replayed run, in which ids from its height of `spans` on are of the reference's; and what to say.

    `tables` has those that changed: all, or none where nothing was paired.
    """

    tables: dict[str, pl.DataFrame]
    findings: Sequence[Finding]


def holds_replays(trace: Trace) -> bool:
    """Whether the trace has device work that a graph launch replayed, whatever its layer is known by."""
    nodes = pl.col("graph_node_id").is_not_null() | pl.col("captured_in_id").is_not_null()
    if trace.scan("kernels").filter(nodes).head(1).collect().height:
        return True
    replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    return bool(trace.scan("spans").filter(replay).head(1).collect().height)


def realign_replays(replayed: Run, reference: Run, min_rate: float) -> Realigned:
    """The replayed run with what the reference says of the same work.

    Work is the same by kind, name, grid, block and order in its step; where one of the runs has no steps, a replay is
    looked for anywhere in the reference. What matches less than `min_rate`, or fits in several layers, stays a replay.
    """
    work = key_work(replayed, reference)
    targets = work.ours.filter("replayed")
    if targets.is_empty():
        return Realigned({}, [])
    by_step = bool(targets["step"].is_not_null().any() and work.theirs["step"].is_not_null().any())
    pairings = _of_steps(work, min_rate) if by_step else _of_launches(work)
    if not by_step:
        rate = sum(_paired_count(each) for each in pairings) / targets.height
        pairings = [each.at_rate(rate) for each in pairings]
    outcome = _outcome(targets, [each for each in pairings if each.rate >= min_rate], reference)
    match = Match(name_of(replayed.trace), name_of(reference.trace), work, by_step, min_rate)
    return Realigned(_tables(replayed.trace, reference.trace, outcome), findings(match, pairings, outcome))


def _of_steps(work: ReplayedWork, min_rate: float) -> list[Pairing]:
    """The steps that hold replays, each with the step of the reference that it matches best."""
    ours = work.ours.filter(pl.col("step").is_not_null(), pl.col("replayed").any().over(_STEP))
    theirs = work.theirs.filter(pl.col("step").is_not_null())
    return list(by_order(distinct_units(ours, _STEP), distinct_units(theirs, _STEP), min_rate))


def _of_launches(work: ReplayedWork) -> list[Pairing]:
    """The graph launches, each with where the reference has the same work."""
    return list(by_search(distinct_units(work.ours.filter("replayed"), _LAUNCH), distinct_units(work.theirs, _RUN)))


def _paired_count(pairing: Pairing) -> int:
    return sum(int((each.partner >= 0).sum()) * len(each.lane.spans) for each in pairing.lanes)


def _outcome(targets: pl.DataFrame, accepted: Sequence[Pairing], reference: Run) -> pl.DataFrame:
    """Of each replayed activity, besides span_id and duration_ns: `partner_id`, its layer, phase and launch there.

    `is_sure` is null for what is in no accepted unit; partner_id is null unless sure, and `has_partner` says whether
    there is one at all.
    """
    pairs = pl.concat([pl.DataFrame(schema=_PAIRS), *(_rows(lane) for each in accepted for lane in each.lanes)])
    rows = targets.select("span_id", "duration_ns").join(pairs, on="span_id", how="left", maintain_order="left")
    rows = rows.with_columns(
        has_partner=pl.col("partner_id").is_not_null(), partner_id=pl.when("is_sure").then("partner_id")
    )
    there = reference.trace.scan("spans").select("parent_id", "layer_id", "phase").collect()
    return rows.hstack(there.select(pl.all().gather(rows["partner_id"])).rename({"parent_id": "launch_id"}))


def _rows(pairs: LanePairs) -> pl.DataFrame:
    """One row an activity of every unit that has the lane's content."""
    units = len(pairs.lane.spans)
    partner, is_sure = np.tile(pairs.partner, units), np.tile(pairs.sure, units)
    return pl.DataFrame(
        {"span_id": pairs.lane.spans.ravel(), "partner_id": partner, "is_sure": is_sure}, schema=_PAIRS
    ).with_columns(pl.when(pl.col("partner_id") >= 0).then("partner_id").alias("partner_id"))


def _tables(replayed: Trace, reference: Trace, outcome: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The tables of the replayed run that change, with the reference's spans behind its own."""
    paired = outcome.filter(pl.col("partner_id").is_not_null())
    if paired.is_empty():
        return {}
    moved = pl.col("partner_id", "launch_id", "layer_id") + replayed.row_count
    here = paired.with_columns(moved).select(
        "span_id", "launch_id", pl.col("layer_id").alias("layer"), pl.col("phase").alias("phase_there")
    )
    return {
        "spans": _spans(replayed.frame("spans"), here),
        "kernels": _kernels(replayed.frame("kernels"), here),
        "attributions": pl.concat(
            [replayed.frame("attributions"), _attributions(paired, reference, replayed.row_count)],
            how="vertical_relaxed",
        ),
    }


def _spans(spans: pl.DataFrame, here: pl.DataFrame) -> pl.DataFrame:
    joined = spans.join(here.drop("launch_id"), on="span_id", how="left", maintain_order="left")
    is_layer = pl.col("layer").is_not_null()
    layer = pl.lit(str(Attribution.LAYER), pl.Categorical)
    return joined.with_columns(
        pl.coalesce("layer", "layer_id").alias("layer_id"),
        pl.coalesce("phase_there", "phase").alias("phase"),
        pl.when(is_layer).then(layer).otherwise("attribution").alias("attribution"),
    ).select(spans.columns)


def _kernels(kernels: pl.DataFrame, here: pl.DataFrame) -> pl.DataFrame:
    """What the file itself says of where a node was captured stands over the launch of the same work elsewhere."""
    joined = kernels.join(here.select("span_id", "launch_id"), on="span_id", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("captured_in_id", "launch_id").alias("captured_in_id")).drop("launch_id")


def _attributions(paired: pl.DataFrame, reference: Trace, offset: int) -> pl.DataFrame:
    """A row for each layer of what was paired: all layers that the reference shares its work among, else the one."""
    shared = reference.frame("attributions").select(
        pl.col("span_id").alias("partner_id"), pl.col("layer_id").alias("shared_id"), "weight"
    )
    rows = paired.filter(pl.col("layer_id").is_not_null()).join(
        shared, on="partner_id", how="left", maintain_order="left"
    )
    return rows.select(
        "span_id",
        (pl.coalesce("shared_id", "layer_id") + offset).alias("layer_id"),
        pl.col("weight").fill_null(1.0),
        pl.lit(str(AttributionBasis.ALIGNED), pl.Categorical).alias("basis"),
    )
