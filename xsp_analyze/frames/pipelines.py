"""Pipelines of stages: their micro-batches, in which order each rank does them, and why it waits between."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import mean_of, total_of
from xsp_analyze.frames.collectives import (
    PAIRWISE,
    computing_operators,
    host_calls_of_collectives,
    operations,
    rank_units,
)
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.rank_waits import waits_of
from xsp_model import Kind, Phase
from xsp_model.columns.intervals import merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "Unit",
    "UnitsByPipeline",
    "bubble_share",
    "bubbles_of",
    "has_pipeline",
    "longest_bubble",
    "pipeline_bubbles",
    "pipeline_units",
    "slowest_stage",
    "units_of_job",
    "units_of_rank",
    "usual_step",
    "usual_step_of",
]

# How schedules name what they do: torch.distributed.pipelining (PP:0F1 is stage 0, forward, micro-batch 1; I and W are
# the backward pass of inputs and of weights), its older schedules, and those of Megatron and its like.
_MARKS = (
    r"^PP:(?P<stage>\d+)(?P<kind>[FBIW])(?P<batch>\d+)$",
    r"^(?P<kind>Forward|Backward) (?P<batch>\d+)$",
    r"^(?:PP::?)?(?P<kind>forward|backward)[_ -]?step(?:\D*(?P<batch>\d+))?$",
)
_SOME_WORK = 0.05  # of a rank's mean unit: less is none
_LITTLE = 0.002  # of a rank's work, such as operators of the host that prepare a buffer
_UNEQUAL = 0.02  # of a step: stages that wait less for the slowest do not wait for it
_IMPOSSIBLE = 0.02  # of the window: more than a replay in whole units is off by
_FORWARD, _BACKWARD, _WEIGHTS = "forward", "backward", "weights"
_KINDS = {"F": _FORWARD, "B": _BACKWARD, "I": _BACKWARD, "W": _WEIGHTS}


@dataclass(frozen=True, slots=True)
class Unit:
    """What a rank computes of one micro-batch in one direction, in one of its stages (counted over all ranks)."""

    rank: int
    kind: str
    stage: int | None
    batch: int
    start_ns: int
    end_ns: int
    busy_ns: float


def has_pipeline(frames: TraceView) -> bool:
    """Whether several ranks pass work on to each other as the stages of a pipeline do."""
    return bool(_members(frames))


def _members(frames: TraceView) -> Mapping[int, tuple[int, ...]]:
    """Of each rank that is a stage the ranks of its pipeline."""
    rows = frames.once(_all_work)
    if rows.is_empty():
        return {}
    links = _links(frames)
    ranks = set(rows["rank"].unique())
    groups = _groups_of_links(links, ranks) if links else [ranks] if _names_stages(rows) else []
    return {rank: tuple(sorted(group)) for group in groups if _is_pipeline(rows, group) for rank in group}


def _links(frames: TraceView) -> set[tuple[int, int]]:
    met = frames.once(_messages).filter(pl.col("meeting").str.contains(">"))["meeting"].unique()
    return {_ends_of(link) for link in met}


def _ends_of(link: str) -> tuple[int, int]:
    one, other = link.replace("<", "").split(">")
    return int(one), int(other)


def _messages(frames: TraceView) -> pl.DataFrame:
    return frames.once(operations).filter(pl.col("operation").is_in([*PAIRWISE, "send_recv"]))


def _groups_of_links(links: set[tuple[int, int]], ranks: set[int]) -> list[set[int]]:
    groups: list[set[int]] = []
    for pair in sorted(links):
        own = set(pair) & ranks
        if len(own) == len(pair):
            joined = [group for group in groups if group & own]
            groups = [group for group in groups if not group & own] + [own.union(*joined)]
    return groups


def _is_pipeline(rows: pl.DataFrame, ranks: set[int]) -> bool:
    """Whether most ranks wait for a message before they compute: those of a ring (context parallel) do not."""
    if len(ranks) < 2:  # noqa: PLR2004 (a pair)
        return False
    own = rows.filter(
        pl.col("rank").is_in(list(ranks)), pl.col("step").eq_missing(pl.lit(_middle_step(rows), pl.Int64))
    )
    if _names_stages(own):
        return True
    return _is_passed_on(_leading_ranks(own)["leads"])


def _is_passed_on(leads: pl.Series) -> bool:
    """Whether some ranks begin by themselves, and most when something has come."""
    return leads.len() > 1 and 0 < leads.sum() <= leads.len() / 2


def _leading_ranks(rows: pl.DataFrame) -> pl.DataFrame:
    """Of each rank that computes whether it does before it receives anything: rank, leads."""
    time = pl.col("end_ns") - pl.col("start_ns")
    at_work = time.cum_sum() >= _LITTLE * time.sum()  # what little comes before prepares it
    first = rows.filter("computes").group_by("rank").agg(pl.col("launch_ns").filter(at_work).min().alias("work_ns"))
    got = rows.filter(~pl.col("computes"), pl.col("operation") == "recv").group_by("rank")
    both = first.join(got.agg(pl.col("launch_ns").min().alias("got_ns")), on="rank", how="left")
    return both.select("rank", leads=pl.col("got_ns").is_null() | (pl.col("work_ns") < pl.col("got_ns")))


def _names_stages(rows: pl.DataFrame) -> bool:
    """Whether marks say of which stage work is: `forward_step` alone may as well be of a job without stages."""
    return bool(rows["mark"].drop_nulls().str.contains(r"^PP:\d").any())


def _middle_step(rows: pl.DataFrame) -> int | None:
    steps: list[int | None] = rows["step"].unique().sort(nulls_last=True).to_list()
    return steps[len(steps) // 2]


def _all_work(frames: TraceView) -> pl.DataFrame:
    """What ranks compute and the messages between, by rank and launch; empty where there are no messages or marks.

    run_id, rank, step, launch_ns, start_ns, end_ns, phase, computes, operation, and of marked work mark, mark_ns.
    """
    messages, marks = frames.once(_messages), frames.once(_marks)
    if messages.is_empty() and marks.is_empty():
        return pl.DataFrame()
    columns = ("run_id", "rank", "step", "launch_ns", "start_ns", "end_ns")
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    sent = messages.with_columns(end).select(*columns, "operation", computes=pl.lit(value=False))
    work = _work_that_computes(frames).with_columns(end).select(*columns, "phase", computes=pl.lit(value=True))
    rows = pl.concat([work.with_columns(pl.col("phase").cast(pl.String)), sent], how="diagonal_relaxed")
    rows = rows.sort("launch_ns", "start_ns")
    if not marks.is_empty():
        rows = rows.join_asof(
            marks.sort("mark_ns"), left_on="launch_ns", right_on="mark_ns", by="run_id", check_sortedness=False,
            coalesce=False,
        )  # fmt: skip
        inside = pl.col("launch_ns") <= pl.col("mark_end_ns")
        rows = rows.with_columns(pl.when(inside).then(c).alias(c) for c in ("mark", "mark_ns"))
    else:
        rows = rows.with_columns(mark=pl.lit(None, pl.String), mark_ns=pl.lit(None, pl.Int64))
    return rows.with_columns(pl.col("mark").is_not_null().alias("marked")).sort("rank", "launch_ns", "start_ns")


def _work_that_computes(frames: TraceView) -> pl.DataFrame:
    """Kernels that compute; of runs without device work `computing_operators` of the host."""
    units = rank_units(frames).select("run_id", "device_id", "rank")
    is_kernel = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.GRAPH)])
    columns = ("run_id", "step", "launch_ns", "start_ns", "duration_ns", "phase")
    work = frames.all_activities.filter(is_kernel, ~IS_COMMUNICATION).with_columns(pl.coalesce("launch_ns", "start_ns"))
    on_device = work.join(units, on=["run_id", "device_id"], nulls_equal=True).select("rank", *columns)
    if host_calls_of_collectives(frames).is_empty():
        return on_device
    of_hosts = units.filter(pl.col("device_id").is_null()).select("run_id", "rank")
    on_hosts = frames.once(computing_operators).with_columns(pl.col("start_ns").alias("launch_ns"))
    return pl.concat([on_device, on_hosts.join(of_hosts, on="run_id").select("rank", *columns)], how="vertical_relaxed")


def _marks(frames: TraceView) -> pl.DataFrame:
    """Ranges that say which micro-batch is computed: run_id, mark, mark_ns, mark_end_ns."""
    names = frames.span_names
    named = names.filter(names.cast(pl.String).str.contains("|".join(_without_names(p) for p in _MARKS)))
    ranges = frames.timed_runs.scan("spans").filter(pl.col("name").is_in(named.implode()), pl.col("duration_ns") > 0)
    return ranges.select(
        "run_id", pl.col("name").cast(pl.String).alias("mark"), pl.col("start_ns").alias("mark_ns"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("mark_end_ns"),
    ).collect()  # fmt: skip


def _without_names(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


def _read_mark(mark: str | None) -> tuple[str | None, int | None, int | None]:
    """Direction, stage and micro-batch that it names."""
    match = next(filter(None, (re.match(p, mark or "") for p in _MARKS)), None)
    if match is None:
        return None, None, None
    parts = match.groupdict()
    kind = _KINDS.get(parts["kind"], parts["kind"].lower())
    stage, batch = (None if parts.get(c) is None else int(parts[c]) for c in ("stage", "batch"))
    return kind, stage, batch


UnitsByPipeline = Mapping[tuple[tuple[int, ...], int | None], Sequence[Sequence[Unit]]]
"""By pipeline (its ranks) and step, the units of each rank in their order."""


def pipeline_units(frames: StepView) -> UnitsByPipeline:
    """By pipeline (its ranks) and step, the units of each rank in their order, of ranks that have any.

    Marked work is by its mark; other is cut where a message is sent or received, and where backward follows forward.
    """
    members = frames.of_trace.once(_members)
    rows = frames.of_trace.once(_all_work)
    out: dict[tuple[tuple[int, ...], int | None], list[Sequence[Unit]]] = {}
    if members:
        own = rows.filter(pl.col("rank").is_in(list(members)))
        for (rank, step), units in _units_by_rank_and_step(frames, own).items():
            out.setdefault((members[rank], step), []).append(units)
    return {key: _with_one_clock(units) for key, units in out.items()}


def _with_one_clock(units: Sequence[Sequence[Unit]]) -> Sequence[Sequence[Unit]]:
    """The units by one clock, where some begin before what they need has ended, so that clocks of ranks differ.

    The least time between two stages is the same both ways, so that half of what the ways differ is the clocks'. Where
    no name says of which stage work is, or data moves one way alone, clocks are taken for one; and where both ways
    together take less than nothing, which no clock explains: then work begins before all that it needs is there.
    """
    every = {(u.kind, u.stage, u.batch): u for own in units for u in own}
    slack: dict[tuple[int, int], int] = {}
    last = max((u.stage if u.stage is not None else -1) for u in every.values())
    for unit in every.values():
        for needed in (every[key] for key in _needs(unit, last) if key in every and unit.stage is not None):
            way = needed.rank, unit.rank
            if needed.rank != unit.rank:
                slack[way] = min(unit.start_ns - needed.end_ns, slack.get(way, unit.start_ns - needed.end_ns))
    both = [time + slack[b, a] for (a, b), time in slack.items() if (b, a) in slack]
    if min(slack.values(), default=0) >= 0 or min(both, default=-1) < 0:
        return units
    ahead, near = {units[0][0].rank: 0}, [units[0][0].rank]
    for one in near:
        for to, back in [(b, slack[b, a]) for a, b in slack if a == one and (b, a) in slack and b not in ahead]:
            ahead[to] = ahead[one] + (slack[one, to] - back) // 2
            near.append(to)
    return [
        [replace(u, start_ns=u.start_ns - ahead.get(u.rank, 0), end_ns=u.end_ns - ahead.get(u.rank, 0)) for u in own]
        for own in units
    ]


_UNIT_SCHEMA = {
    "step": pl.Int64, "kind": pl.String, "unit_stage": pl.Int64, "batch": pl.Int64, "start_ns": pl.Int64,
    "end_ns": pl.Int64, "busy_ns": pl.Float64, "leads": pl.Boolean,
}  # fmt: skip


def units_of_rank(frames: StepView) -> pl.DataFrame:
    """The units of a rank that is read by itself, in their order; `leads`: it begins before anything has come.

    Null where marks name its stages, so that it need not be told by that. Empty where it sends and receives nothing
    and no marks are there; whether it is a stage at all only all ranks of the job tell.
    """
    rows = frames.of_trace.once(_all_work)
    if rows.is_empty() or rows["rank"].n_unique() > 1:
        return pl.DataFrame(schema=_UNIT_SCHEMA)
    middle = rows.filter(pl.col("step").eq_missing(pl.lit(_middle_step(rows), pl.Int64)))
    leads = None if _names_stages(middle) else bool(_leading_ranks(middle)["leads"].any())
    units = _units_by_rank_and_step(frames, rows)
    out = [
        (step, u.kind, u.stage, u.batch, u.start_ns, u.end_ns, u.busy_ns, leads)
        for (_, step), own in units.items()
        for u in own
    ]
    return pl.DataFrame(out, schema=_UNIT_SCHEMA, orient="row")


def units_of_job(units: pl.DataFrame, waits: pl.DataFrame) -> UnitsByPipeline:
    """`pipeline_units` of a job, from what `units_of_rank` has of each with `rank`, and messages of `with_waits`."""
    ranks = set(units["rank"].unique())
    met = waits.filter(pl.col("meeting").str.contains(">"))["meeting"].unique()
    groups = _groups_of_links({_ends_of(link) for link in met}, ranks)
    if not groups and units["leads"].null_count():
        groups = [ranks]
    leads = units.group_by("rank").agg(pl.col("leads").first())
    out: dict[tuple[tuple[int, ...], int | None], list[Sequence[Unit]]] = {}
    for group in groups:
        of_group = leads.filter(pl.col("rank").is_in(list(group)))["leads"]
        if len(group) > 1 and (of_group.null_count() or _is_passed_on(of_group)):
            own = units.filter(pl.col("rank").is_in(list(group)))
            for (step, rank), rows in own.group_by("step", "rank", maintain_order=True):
                columns = rows.select("kind", "unit_stage", "batch", "start_ns", "end_ns", "busy_ns")
                each = [Unit(int(rank), *row) for row in columns.iter_rows()]
                out.setdefault((tuple(sorted(group)), step), []).append(each)
    return {key: _with_one_clock(units) for key, units in out.items()}


def _units_by_rank_and_step(frames: StepView, rows: pl.DataFrame) -> Mapping[tuple[int, int | None], Sequence[Unit]]:
    no_part = pl.col("phase").fill_null("") == str(Phase.OPTIMIZER)
    rows = rows.filter(~(pl.col("computes") & no_part))
    if not frames.of_trace.all_steps.is_empty():
        rows = rows.drop_nulls("step")
    grouped = rows.group_by("step", "rank", maintain_order=True)
    units = {(int(rank), step): _units_in_order(list(_units_of(int(rank), own))) for (step, rank), own in grouped}
    return {key: own for key, own in units.items() if own}


def usual_step(frames: StepView, pipeline: str) -> tuple[int | None, Sequence[Sequence[Unit]]]:
    """The step of median length of a pipeline, which is named as in B46, with the units of each rank."""
    return usual_step_of(frames.once(pipeline_units), pipeline)


def usual_step_of(units_by_pipeline: UnitsByPipeline, pipeline: str) -> tuple[int | None, Sequence[Sequence[Unit]]]:
    """`usual_step` of units by pipeline and step."""
    steps = {step: units for (ranks, step), units in units_by_pipeline.items() if _pipeline_name(ranks) == pipeline}
    lengths = {
        step: max(unit.end_ns for own in units for unit in own) - min(unit.start_ns for own in units for unit in own)
        for step, units in steps.items()
    }
    step = sorted(lengths, key=lambda one: lengths[one])[len(lengths) // 2]
    return step, steps[step]


def _pipeline_name(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _units_of(rank: int, rows: pl.DataFrame) -> Iterator[Unit]:
    is_back = (pl.col("phase").fill_null("") == str(Phase.BACKWARD)).alias("back")
    rows = rows.with_columns(is_back, (~pl.col("computes")).cast(pl.Int64).cum_sum().alias("after"))
    unmarked = pl.struct("after", "back")
    new = (pl.col("mark_ns").ne_missing(pl.col("mark_ns").shift())) | (
        pl.col("mark_ns").is_null() & unmarked.ne_missing(unmarked.shift())
    )
    work = rows.filter("computes")
    if work["marked"].any():
        work = work.filter("marked")
    numbered = work.with_columns(new.fill_null(value=True).cum_sum().alias("unit"))
    for _, own in numbered.group_by("unit", maintain_order=True):
        kind, stage, batch = _read_mark(own["mark"][0])
        kind = kind or (_BACKWARD if own["back"][0] else _FORWARD)
        begin, end = merge(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        yield Unit(
            rank, kind, stage, -1 if batch is None else batch, int(begin[0]), int(end[-1]), float((end - begin).sum())
        )


def _units_in_order(units: Sequence[Unit]) -> Sequence[Unit]:
    """The units without what is too little to be one, those without a micro-batch by their order in each direction."""
    if all(unit.batch >= 0 for unit in units):
        return units
    threshold = _SOME_WORK * sum(unit.busy_ns for unit in units) / len(units)
    kept = [unit for unit in units if unit.busy_ns > threshold]
    numbers: dict[tuple[str, int | None], int] = {}
    out = []
    for unit in kept:
        nth = numbers.get((unit.kind, unit.stage), 0)
        numbers[unit.kind, unit.stage] = nth + 1
        out.append(replace(unit, batch=nth))
    return out


# The bubble of each stage: how long it computes nothing while the pipeline runs, and why.
#
# Its units are replayed in their order: with equal stages and without transfers the schedule's own bubble is left; what
# unequal stages and transfers add to that are theirs, and what was measured beyond is what else kept it.


def pipeline_bubbles(frames: StepView) -> pl.DataFrame:
    """One row a rank of a pipeline and step: see B46 for the columns, of which `run_id` is the rank's run."""
    runs = dict(rank_units(frames.of_trace).select("rank", "run_id").iter_rows())
    rows = bubbles_of(frames.once(pipeline_units), frames.once(waits_of))
    run_ids = pl.col("rank").replace_strict(runs, return_dtype=pl.Int64) if rows.height else pl.lit(None, pl.Int64)
    return rows.with_columns(run_ids.alias("run_id"))


def bubbles_of(by_pipeline: UnitsByPipeline, waits: pl.DataFrame) -> pl.DataFrame:
    """The bubbles of pipelines, as `pipeline_bubbles` has them without `run_id`; waits as `with_waits` has them."""
    links = {_ends_of(link) for link in waits["meeting"].unique() if ">" in link}
    waits = waits.filter(pl.col("matched"), pl.col("meeting") != pl.col("operation"), pl.col("transfer_ns") > 0)
    times = waits.group_by("meeting").agg(pl.col("transfer_ns").mean()).sort("meeting")
    transfers = {
        way: float(time) for link, time in times.iter_rows() for way in _ways_of(link)
    }  # of an exchange both ways, unless it is known of one
    timed = {_ends_of(way) for way in transfers}
    received: dict[int | None, dict[str, int]] = {}
    counted = waits.filter(pl.col("operation") == "recv").group_by("step", "meeting").len()
    for step, link, count in counted.iter_rows():
        received.setdefault(step, {})[link] = count
    rows = [
        {"step": step, **row}
        for (ranks, step), units in by_pipeline.items()
        for row in _bubbles(
            ranks,
            sorted(units, key=_position_of_stage),
            transfers,
            received.get(step, {}),
            is_part=any((one in ranks) != (other in ranks) for one, other in links) or _lacks_stages(units),
            are_unknown=any(
                {one, other} <= {*ranks} and not timed & {(one, other), (other, one)} for one, other in links
            ),
        )
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)


def _ways_of(link: str) -> Sequence[str]:
    one, other = _ends_of(link)
    return (f"{one}>{other}", f"{other}>{one}") if "<" in link else (link,)


def bubble_share(stages: pl.DataFrame) -> float:
    """How much of the time of a pipeline's stages is bubble, by its rows of B46."""
    return total_of(stages["bubble_ns"]) / total_of(stages["window_ns"])


def longest_bubble(rows: pl.DataFrame) -> pl.DataFrame:
    """Of rows of B46 those of the pipeline that has the stage with the longest bubble."""
    order = rows.sort("bubble_ns", descending=True, nulls_last=True, maintain_order=True)
    return rows.filter(pl.col("pipeline") == order["pipeline"][0])


def slowest_stage(stages: pl.DataFrame) -> int | None:
    """The stage that others of a pipeline wait for, by its rows of B46; None where they hardly wait for any."""
    waits = stages.filter(pl.col("imbalance_ns") > 0)["imbalance_ns"]
    if waits.is_empty() or mean_of(waits) <= _UNEQUAL * stages["window_ns"][0]:
        return None
    return int(stages.sort("compute_ns", descending=True)["stage"][0])


_MEASURED = (
    "window_ns", "compute_ns", "bubble_ns", "warm_up_ns", "drain_ns", "schedule_ns", "imbalance_ns", "transfer_ns",
    "other_ns",
)  # fmt: skip
_SCHEMA = {
    "step": pl.Int64, "pipeline": pl.String, "stage": pl.Int64, "rank": pl.Int64,
    "schedule": pl.String, "micro_batches": pl.Int64, "stages_of_rank": pl.Int64,
    **dict.fromkeys(_MEASURED, pl.Float64),
}  # fmt: skip


def _position_of_stage(units: Sequence[Unit]) -> tuple[int, int, int]:
    """By the stage that it says, or by when it begins."""
    return (units[0].stage if units[0].stage is not None else -1, units[0].start_ns, units[0].rank)


def _bubbles(
    ranks: Sequence[int],
    units: Sequence[Sequence[Unit]],
    transfers: Mapping[str, float],
    received: Mapping[str, int],
    *,
    is_part: bool,
    are_unknown: bool,
) -> Iterator[dict[str, object]]:
    """The rows; without causes where stages are not told apart, or `is_part`: others of the pipeline are not there.

    `are_unknown`: how long its transfers take, which then are in no cause.
    """
    every = [unit for own in units for unit in own]
    begin, end = min(u.start_ns for u in every), max(u.end_ns for u in every)
    chunks, batches = _chunks(units), len({u.batch for u in every})
    forwards = _forwards_of_split_backward(units)
    unclear = _are_stages_unclear(units, received) or forwards is not None
    numbered = _with_stages(units, chunks)
    equal, actual, moved = (None,) * 3 if unclear or is_part else (_replay(each, moves) for each, moves in (
        (_with_equal_times(numbered), {}), (numbered, {}), (numbered, transfers),
    ))  # fmt: skip
    compute = [sum(u.busy_ns for u in own) for own in units]
    mean = sum(compute) / len(compute)
    if equal and actual and moved and moved > (1 + _IMPOSSIBLE) * (end - begin):
        equal = None  # what was replayed takes longer than it took: the units are not these
    for position, own in enumerate(units):
        bubble = end - begin - compute[position]
        causes: dict[str, object] = {}
        if equal and actual and moved:
            parts = (equal - mean, (actual - compute[position]) - (equal - mean))
            causes = dict(zip(("schedule_ns", "imbalance_ns"), parts, strict=True))
            if not are_unknown:
                transfer = moved - actual
                causes |= {"transfer_ns": transfer, "other_ns": bubble - sum(parts) - transfer}
        yield {
            "pipeline": _pipeline_name(ranks), "stage": position, "rank": own[0].rank,
            "schedule": "zero bubble" if forwards else "interleaved" if unclear else _schedule(units, chunks),
            "micro_batches": forwards if unclear else batches, "stages_of_rank": None if unclear else chunks,
            "window_ns": float(end - begin), "compute_ns": compute[position], "bubble_ns": bubble,
            "warm_up_ns": float(own[0].start_ns - begin), "drain_ns": float(end - max(u.end_ns for u in own)), **causes,
        }  # fmt: skip


def _lacks_stages(units: Sequence[Sequence[Unit]]) -> bool:
    """Whether marks name a stage behind one that no rank has."""
    named = {u.stage for own in units for u in own if u.stage is not None}
    return bool(named) and len(named) <= max(named)


def _forwards_of_split_backward(units: Sequence[Sequence[Unit]]) -> int | None:
    """Micro-batches where ranks go backward in more pieces than forward, so that which piece is of which is not told.

    Weights' part of the backward pass is apart then, and no name says so; None elsewhere.
    """
    if any(unit.stage is not None for own in units for unit in own):
        return None
    forward = {sum(unit.kind == _FORWARD for unit in own) for own in units}
    backward = max(sum(unit.kind == _BACKWARD for unit in own) for own in units)
    return max(forward) if len(forward) == 1 and 0 < max(forward) < backward else None


def _are_stages_unclear(units: Sequence[Sequence[Unit]], received: Mapping[str, int]) -> bool:
    """Whether the last rank passes work on to the first, as where ranks have several stages, which no name tells."""
    if any(unit.stage is not None for own in units for unit in own):
        return False
    first, last = units[0][0].rank, units[-1][0].rank
    back = received.get(f"{last}>{first}", 0)
    if len(units) > 2:  # noqa: PLR2004 (of a pair it is also the way of gradients)
        return back > 0
    return back > sum(unit.kind == _BACKWARD for unit in units[0])


def _chunks(units: Sequence[Sequence[Unit]]) -> int:
    return max(len({u.stage for u in own}) for own in units)


def _schedule(units: Sequence[Sequence[Unit]], chunks: int) -> str:
    orders = ["".join(u.kind[0] for u in own) for own in units]
    interleaved = "interleaved " if chunks > 1 else ""
    if any("w" in order for order in orders):
        return "zero bubble"
    if not any("b" in order for order in orders):
        return f"{interleaved}forward only"
    return interleaved + ("GPipe" if all("bf" not in order for order in orders) else "1F1B")


def _with_stages(units: Sequence[Sequence[Unit]], chunks: int) -> Sequence[Sequence[Unit]]:
    """The units with the stage of each; where ranks have one each, by place."""
    if chunks > 1 or all(u.stage is not None for own in units for u in own):
        return units
    return [[replace(u, stage=position) for u in own] for position, own in enumerate(units)]


def _with_equal_times(units: Sequence[Sequence[Unit]]) -> Sequence[Sequence[Unit]]:
    every = [u for own in units for u in own]
    mean = {kind: np.mean([u.busy_ns for u in every if u.kind == kind]) for kind in {u.kind for u in every}}
    return [[replace(u, busy_ns=float(mean[u.kind])) for u in own] for own in units]


def _replay(units: Sequence[Sequence[Unit]], transfers: Mapping[str, float]) -> float | None:
    """How long the pipeline takes if each rank does its units in their order as soon as it can; None: it cannot be."""
    last = max((u.stage or 0) for own in units for u in own)
    made = {(u.kind, u.stage, u.batch): u.rank for own in units for u in own}
    ends: dict[tuple[str, int | None, int], float] = {}
    free, at = [0.0] * len(units), [0] * len(units)
    moved = True
    while moved:
        moved = False
        for position, own in enumerate(units):
            while at[position] < len(own):
                unit = own[at[position]]
                needed = [key for key in _needs(unit, last) if key in made]
                if any(key not in ends for key in needed):
                    break
                arrived = (ends[key] + transfers.get(f"{made[key]}>{unit.rank}", 0.0) for key in needed)
                free[position] = max([free[position], *arrived]) + unit.busy_ns
                ends[unit.kind, unit.stage, unit.batch] = free[position]
                at[position] += 1
                moved = True
    return max(free) if all(n == len(own) for n, own in zip(at, units, strict=True)) else None


def _needs(unit: Unit, last: int) -> Iterator[tuple[str, int | None, int]]:
    """What must be done before: the stage before it (backward: behind it) of the micro-batch, and its own forward."""
    stage = unit.stage or 0
    if unit.kind == _FORWARD:
        yield _FORWARD, stage - 1, unit.batch
    elif unit.kind == _BACKWARD:
        yield _FORWARD, stage, unit.batch
        if stage < last:
            yield _BACKWARD, stage + 1, unit.batch
    else:
        yield _BACKWARD, stage, unit.batch
