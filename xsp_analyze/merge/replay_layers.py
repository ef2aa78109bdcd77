"""The tables of a replayed run with the layers, phases and launches of the same work in a run without graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.labels import base_name, normal_name
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import AXES
from xsp_analyze.merge.comparable import name_of
from xsp_analyze.merge.matching import Matched
from xsp_analyze.merge.replay_pairs import by_order, by_search, distinct_units
from xsp_analyze.trace.timed_runs import without_captures
from xsp_model import Attribution, AttributionBasis, Finding, Kind, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.merge.replay_pairs import Lane, LanePairs, Pairing
    from xsp_model import Trace

__all__ = ["Match", "Realigned", "ReplayedWork", "Run", "findings", "holds_replays", "key_work", "realign_replays"]

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


# The device work of two runs side by side: what each activity is, so that the same of both can be told.
_COLUMNS = (
    *("span_id", "parent_id", "run_id", "process_id", "step", "device_id", "stream_id"),
    *("kind", "name", "start_ns", "duration_ns", "layer_id", "phase", "attribution"),
)
_IDENTITY = ("layer_index", "layer_name", "path", "phase")


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its table `layers` under the identities that the profile has."""

    trace: Trace
    layers: pl.DataFrame


@dataclass(frozen=True, slots=True)
class ReplayedWork:
    """The device activities of the replayed run and of the reference, and what they were compared by.

    `key` is a number, the same exactly for activities that may be the same work: of one kind, name, grid and block.
    `identity` is a number for layer and phase in the reference, and `replayed` says what of ours lacks its layer for
    being replayed.
    """

    ours: pl.DataFrame
    theirs: pl.DataFrame
    basis: str


def key_work(replayed: Run, reference: Run) -> ReplayedWork:
    """The activities of both runs with their keys."""
    ours, theirs = _activities(replayed.trace), _activities(reference.trace)
    spelling, spelled_as = _spelling(ours, theirs)
    both = pl.concat([ours.with_columns(of=pl.lit(0)), theirs.with_columns(of=pl.lit(1))])
    names = both["name"].cast(pl.String).replace(spelling)
    both = both.with_columns(names.cast(pl.Categorical).alias("spelled"), pl.col("kind").cast(pl.String))
    keys = ["kind", "spelled", *AXES]
    both = _with_shapes(both, [replayed.trace, reference.trace])
    has_shapes = bool(both.select(pl.any_horizontal(pl.col(AXES).is_not_null()).any()).item())
    key, _ = numbers_by_appearance(*group_ids(both.select(keys)))
    both = both.with_columns(key=pl.Series(key, dtype=pl.Int64)).drop("of", "spelled", *AXES)
    parts = both[: ours.height], both[ours.height :]
    return ReplayedWork(
        _mark_replays(parts[0]), _with_identities(parts[1], reference.layers), spelled_as + _SHAPED[has_shapes]
    )


_SHAPED = {True: ", grid and block", False: ""}


def _activities(trace: Trace) -> pl.DataFrame:
    """All device activities but those of captures, and replays recorded as one, of which nothing can be told."""
    rows = (
        without_captures(trace, trace.scan("spans"))
        .filter(pl.col("attribution").is_not_null())
        .select(_COLUMNS)
        .collect()
    )
    return rows.filter(pl.col("kind").cast(pl.String) != str(Kind.GRAPH)).with_columns(
        pl.col("duration_ns").fill_null(0)
    )


def _spelling(ours: pl.DataFrame, theirs: pl.DataFrame) -> tuple[dict[str, str], str]:
    """Each name as it is compared: whole, or the function alone where that alone finds kernels in the other run."""
    names, others = ({*rows["name"].cast(pl.String).unique()} for rows in (ours, theirs))
    full = {name: normal_name(name) for name in names | others}
    if len(names & others) < len(names):
        short = {name: base_name(name) for name in names | others}
        if _in_both(short, names, others) > _in_both(full, names, others):
            return short, "name of the function"
    return full, "name"


def _in_both(spelling: dict[str, str], names: set[str], others: set[str]) -> int:
    """How many of the names are, so spelled, in the other run too."""
    there = {spelling[name] for name in others}
    return sum(spelling[name] in there for name in names)


def _with_shapes(both: pl.DataFrame, traces: list[Trace]) -> pl.DataFrame:
    """Adds AXES, null for every kernel of a name of which one of the runs does not tell all of them."""
    kernels = pl.concat(
        trace.scan("kernels").select("span_id", *AXES).collect().with_columns(of=pl.lit(n))
        for n, trace in enumerate(traces)
    )
    shaped = both.join(kernels, on=["of", "span_id"], how="left", maintain_order="left")
    all_have = pl.all_horizontal(pl.col(AXES).is_not_null()).all().over("kind", "spelled")
    return shaped.with_columns(pl.when(all_have).then(pl.col(axis)).alias(axis) for axis in AXES)


def _mark_replays(ours: pl.DataFrame) -> pl.DataFrame:
    is_replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    return ours.with_columns(is_replay.alias("replayed"), pl.lit(0, pl.Int64).alias("identity"))


def _with_identities(theirs: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    calls = layers.select(pl.col("span_id").alias("layer_id"), "layer_index", "layer_name", "path")
    identified = theirs.join(calls, on="layer_id", how="left", maintain_order="left")
    number, _ = numbers_by_appearance(*group_ids(identified.select(_IDENTITY)))
    return identified.with_columns(
        pl.Series("identity", number, dtype=pl.Int64), pl.lit(value=False).alias("replayed")
    ).drop("layer_index", "layer_name", "path")


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
