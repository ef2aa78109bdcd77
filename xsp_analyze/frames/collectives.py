"""Collectives as each rank called them, what they moved, and how the time of ranks compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.steps import StepMode, kept_steps
from xsp_model import Kind, Level
from xsp_model.clock_skew import clock_skews
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.intervals import coverage_before, merge
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "CALL",
    "CLOCKS",
    "GROUP",
    "PAIRWISE",
    "MedianRank",
    "bus_factor",
    "group_label",
    "groups_by_bytes",
    "has_ranks",
    "longest_of_columns",
    "matched_count",
    "mean_waiting",
    "median_rank",
    "message_bytes",
    "modelled_collectives",
    "operations",
    "rank_clocks",
    "rank_times",
    "rank_units",
    "ranks_off_the_median",
    "recorded_facts",
    "waiting_by_rank",
    "waits_of",
    "with_sizes",
    "with_waits",
]

# What the ranks of a trace are: runs side by side, or the devices of a run that speak to each other.
_UNIT = ("run_id", "process_id", "device_id")
_IS_WORK = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.MEMCPY)])  # copy engines communicate too


def rank_units(frames: TraceView) -> pl.DataFrame:
    """One row a rank, in order: run_id, process_id, device_id, rank.

    Of a run those devices that communicate, else all that worked; a run without device work is one of null device.
    `rank` is what the run says, or where one run has several, the device; where neither tells ranks apart they are
    numbered in order.
    """
    work = frames.all_activities
    talks = (IS_COMMUNICATION & _IS_WORK).any()
    used = work.group_by(_UNIT).agg(talks.alias("talks"))
    used = used.filter(pl.col("talks") | ~pl.col("talks").any().over("run_id")).select(_UNIT)
    runs = frames.kernel_runs.table
    idle = runs.join(used, on="run_id", how="anti").select(
        "run_id", *(pl.lit(None, used.schema[c]).alias(c) for c in _UNIT[1:])
    )
    units = pl.concat([used, idle.cast(used.schema)]).sort(_UNIT, nulls_last=True)
    numbered = units.join(runs.select("run_id", pl.coalesce("rank", "run_id").alias("rank")), on="run_id", how="left")
    if numbered["rank"].n_unique() == units.height:
        return numbered.sort("rank")
    if units["run_id"].n_unique() == 1 and units["device_id"].drop_nulls().n_unique() == units.height:
        return units.with_columns(pl.col("device_id").cast(pl.Int64).alias("rank"))
    return units.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("rank"))


def has_ranks(frames: TraceView) -> bool:
    """Whether several ranks can be told apart, each with devices of its own, or without any."""
    if frames.is_leveled:
        return False
    units = rank_units(frames)
    if units.select("run_id", "device_id").is_duplicated().any():
        return False
    several_runs = units["run_id"].n_unique() > 1
    return several_runs or (units.height > 1 and not frames.all_activities.filter(IS_COMMUNICATION).is_empty())


# What a trace records of collectives: which operation a communication kernel is, of which process group, how large.
_RANGE = r"^(?:nccl|rccl|gloo|ucc):_?(\w+?)_*$"
_FACTS = ("operation", "group_name", "group_ranks", "group_size", "input_bytes", "output_bytes")
_GROUP = ("group_name", "group_ranks", "group_size")


def group_label() -> pl.Expr:
    """A group as people know it: the ranks tell groups of one name apart, the name groups of the same ranks."""
    label = pl.concat_str("group_name", "group_ranks", separator=" ", ignore_nulls=True)
    return pl.when(label != "").then(label).alias("process_group")


def recorded_facts(trace: Trace, kernels: Ints) -> pl.DataFrame:
    """For each kernel _FACTS: its own, else those of the nearest call around its launch that has each."""
    facts = trace.frame("collectives").with_columns(pl.col(pl.Categorical).cast(pl.String))
    if not len(kernels):
        return facts.clear().select(_FACTS)
    spans = trace.scan("spans").select("parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    own = pl.DataFrame({"span_id": kernels}).join(facts, on="span_id", how="left", maintain_order="left")
    around = [_around(parents, kernels, facts, (name,)) for name in ("operation", "input_bytes", "output_bytes")]
    group = _around(parents, kernels, facts.filter(pl.any_horizontal(pl.col(_GROUP).is_not_null())), _GROUP)
    nearest = pl.concat([*around, group], how="horizontal")
    named = _range_operation(spans, parents, kernels)
    first = {name: [own[name], nearest[name]] for name in _FACTS}
    first["operation"].insert(1, named)
    return pl.DataFrame([pl.select(pl.coalesce(each)).to_series().alias(name) for name, each in first.items()])


def _around(parents: Positions, kernels: Ints, facts: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    """The columns of the nearest span around each kernel that has the first of them (of a group: any)."""
    rows = facts if len(columns) > 1 else facts.drop_nulls(columns)
    mask = np.zeros(len(parents), dtype=np.bool_)
    mask[rows["span_id"].to_numpy()] = True
    spans = pl.DataFrame({"span_id": innermost(parents, mask)[kernels].astype(np.int64)})
    return spans.join(rows, on="span_id", how="left", maintain_order="left").select(columns)


def _range_operation(spans: pl.DataFrame, parents: Positions, kernels: Ints) -> pl.Series:
    """What the range of the framework around each launch names, else null."""
    names = spans["name"].unique()
    of_ranges = names.filter(names.cast(pl.String).str.contains(_RANGE))
    is_range: Bools = ((spans["level"] == str(Level.LIBRARY)) & spans["name"].is_in(of_ranges.implode())).to_numpy()
    around = innermost(parents, is_range)[kernels]
    return spans["name"].gather(nullable_index(around)).cast(pl.String).str.extract(_RANGE)


def bus_factor(operation: pl.Expr, ranks: pl.Expr) -> pl.Expr:
    """Bytes over each rank's link per byte of `message_bytes`; null for a group of one, and where none is defined.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    others = (ranks - 1) / ranks
    factor = (
        pl.when(operation == "all_reduce")
        .then(2 * others)
        .when(operation.is_in(["all_gather", "reduce_scatter", "all_to_all"]))
        .then(others)
        .when(operation.is_in(["broadcast", "reduce", "send", "recv", "send_recv"]))
        .then(pl.lit(1.0))
    )
    return pl.when(ranks > 1).then(factor)


def message_bytes(ranks: pl.Expr) -> pl.Expr:
    """The size that nccl-tests takes rates of: what is gathered or scattered as a whole, else a rank's input.

    Versions of the framework differ in whether one part or the whole is the input of a gather or scatter: null where
    input and output do not differ by the number of ranks.
    """
    sent, received, operation = pl.col("input_bytes"), pl.col("output_bytes"), pl.col("operation")
    return (
        pl.when(operation == "all_gather")
        .then(pl.when(received == sent * ranks).then(received))
        .when(operation == "reduce_scatter")
        .then(pl.when(sent == received * ranks).then(sent))
        .when(operation == "recv")
        .then(pl.coalesce(received, sent))
        .otherwise(sent)
        .alias("message_bytes")
    )


def operations(frames: StepView) -> pl.DataFrame:
    """One row a communication kernel: run_id, step, operation, process_group, group_size, number, times and bytes.

    `rank` as `rank_units` has it. `operation` is what the framework
    calls it, or else what the kernel's name says. `process_group` is the group's name and ranks as recorded, null where
    nothing is recorded. `number` counts the operation in its rank, step and group, in order of launch. `exposed_ns` is
    the time in which nothing else computed on the device; `input_bytes` and `output_bytes` are null where not recorded.
    """
    described = _recorded_kernels(frames.of_trace)
    calls = ["run_id", "rank", "step", "process_group", "operation"]
    return (
        described.hstack([_ranks(frames.of_trace, described), _exposed_times(frames, described)])
        .sort("launch_ns", "start_ns", "span_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(calls).alias("number"))
        .select(*calls, "group_size", "number", "start_ns", "duration_ns", "exposed_ns", "input_bytes", "output_bytes")
    )


def modelled_collectives(frames: TraceView) -> pl.DataFrame:
    """One row a communication kernel, in order of span_id: span_id and bus_bytes, what its rank sends to others.

    By what is recorded of it and by `bus_factor`; 0 in a group of one, null where size or group are not known.
    """
    rows = with_sizes(frames.trace, _recorded_kernels(frames))
    alone = pl.when(pl.col("ranks") == 1, pl.col("message_bytes").is_not_null()).then(0.0)
    sent = pl.col("message_bytes") * bus_factor(pl.col("operation"), pl.col("ranks"))
    return rows.select("span_id", pl.coalesce(alone, sent).alias("bus_bytes")).sort("span_id")


def with_sizes(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `ranks`, the size of the group or else of the job, and `message_bytes`."""
    sizes = trace.frame("runs")["world_size"].drop_nulls().unique()
    job = int(sizes[0]) if len(sizes) == 1 else None
    of_job = pl.when(pl.col("process_group").is_null()).then(pl.lit(job, pl.Int64))
    return rows.with_columns(pl.coalesce("group_size", of_job).alias("ranks")).with_columns(
        message_bytes(pl.col("ranks"))
    )


def _recorded_kernels(frames: TraceView) -> pl.DataFrame:
    """The kernels and copies that communicate with what is recorded of each, `process_group` and `operation`."""
    kernels = frames.all_activities.filter(_IS_WORK, IS_COMMUNICATION)
    by_name = pl.col("collective").cast(pl.String).fill_null("other")
    described = kernels.hstack(recorded_facts(frames.trace, kernels["span_id"].to_numpy())).filter(_is_call(kernels))
    return described.with_columns(pl.coalesce("operation", by_name).alias("operation"), group_label())


def _is_call(kernels: pl.DataFrame) -> pl.Expr:
    """Of kernels with what is recorded: those that communicate by name, and those of which no recorded call has these.

    Within a call of the framework others pack and unpack what is sent: of its class, but no calls of their own.
    """
    named = communication_names(kernels["name"])
    is_copy = pl.col("kind").cast(pl.String) == str(Kind.MEMCPY)  # by engines, in place of a kernel
    return is_copy | pl.col("name").cast(pl.String).is_in(named.implode()) | pl.col("operation").is_null()


def _ranks(frames: TraceView, kernels: pl.DataFrame) -> pl.Series:
    """Of each kernel the rank that ran it."""
    units = rank_units(frames)
    return kernels.select(_UNIT).join(units, on=_UNIT, how="left", nulls_equal=True, maintain_order="left")["rank"]


def _exposed_times(frames: StepView, kernels: pl.DataFrame) -> pl.Series:
    """How long each ran while no kernel but communication did on its device."""
    out = np.zeros(kernels.height, dtype=np.int64)
    kinds = [str(Kind.KERNEL), str(Kind.GRAPH)]
    compute = frames.of_trace.all_activities.filter(pl.col("kind").cast(pl.String).is_in(kinds), ~IS_COMMUNICATION)
    for (run, device), rows in kernels.with_row_index("row").group_by("run_id", "device_id"):
        beside = compute.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))
        start = rows["start_ns"].to_numpy()
        end = start + rows["duration_ns"].to_numpy()
        busy = merge(beside["start_ns"].to_numpy(), (beside["start_ns"] + beside["duration_ns"]).to_numpy())
        out[rows["row"].to_numpy()] = end - start - (coverage_before(busy, end) - coverage_before(busy, start))
    return pl.Series("exposed_ns", out)


# Who waits for whom: collectives matched between ranks, from one trace or from the tables of many.
PAIRWISE = ("send", "recv")
"""Operations of two ranks each time: the n-th of one rank of a group is no other's n-th."""
GROUP = ("operation", "process_group")
CALL = ("step", *GROUP, "number")
"""What makes a collective on two ranks one call: the n-th of its operation and group in its step."""
Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def with_waits(rows: Rows) -> Rows:
    """Collectives (rank, CALL, duration_ns) with what matching them between ranks tells of each.

    `matched`: every rank of its group ran the call, if there are several; where no group is recorded, every rank that
    runs the operation. All ranks leave a collective together, so that the shortest is that of the rank that came last:
    `transfer_ns` is its time, `wait_ns` what the row took beyond that, both null where nothing is matched. No clock is
    compared. `last_share` is 1 where the row's rank came last, a part of it where others came as late, else 0.
    """
    rank, duration = pl.col("rank").n_unique(), pl.col("duration_ns")
    ungrouped = pl.when(pl.col("process_group").is_null()).then("operation")  # who takes part is not is_matched
    ranks, here = rank.over("process_group", ungrouped), rank.over(CALL)
    matched = (here == ranks) & (ranks > 1) & ~pl.col("operation").is_in(PAIRWISE)
    shortest = pl.when("matched").then(duration.min().over(CALL))
    is_shortest = (duration == pl.col("transfer_ns")).fill_null(value=False)
    share = pl.when("is_shortest").then(1 / pl.col("is_shortest").sum().over(CALL)).otherwise(0.0)
    return (
        rows.with_columns(matched.alias("matched"))
        .with_columns(shortest.alias("transfer_ns"))
        .with_columns((duration - pl.col("transfer_ns")).alias("wait_ns"), is_shortest.alias("is_shortest"))
        .with_columns(share.alias("last_share"))
        .drop("is_shortest")
    )


def waiting_by_rank(waits: pl.DataFrame, keys: tuple[str, ...] = ()) -> pl.DataFrame:
    """Sums of what `with_waits` gives over each of these and rank: count, matched_count, last_count, duration_ns, ...

    `last_count` are calls that it alone came last to. `waited_for_ns` is what the others together waited in calls that
    it came last to, of several as late an equal part. Both, and `wait_ns`, are null where none of its calls is matched.
    """
    wait_of_call = pl.col("wait_ns").sum().over(CALL)
    is_matched = pl.col("matched").any()
    sums = {
        "last_count": (pl.col("last_share") == 1).sum().cast(pl.Int64),
        "wait_ns": pl.col("wait_ns").sum(),
        "waited_for_ns": pl.col("caused_ns").sum(),
    }
    return (
        waits.with_columns((wait_of_call * pl.col("last_share")).alias("caused_ns"))
        .group_by(*keys, "rank", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("duration_ns").sum(),
            pl.col("matched").sum().cast(pl.Int64).alias("matched_count"),
            *(pl.when(is_matched).then(value).alias(name) for name, value in sums.items()),
        )
    )


# What each rank did with its time, over the steps chosen, and how far its clock is off.
CLOCKS = {"clock_offset_ns": pl.Int64(), "clock_spread_ns": pl.Int64(), "clock_count": pl.Int64()}
_TIMES = ("step_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")


def waits_of(frames: StepView) -> pl.DataFrame:
    """The collectives of all steps, see `operations`, with what `with_waits` tells of each."""
    return with_waits(frames.once(operations))


def rank_times(frames: StepView) -> pl.DataFrame:
    """One row a rank (and step, where each is answered), in order: _TIMES, wait_ns and last_count.

    step = compute + exposed communication + exposed memory + idle. A rank without device work has its step alone.
    Of a mean step times are means over the same whole steps.
    """
    units = rank_units(frames.of_trace).select("run_id", "device_id", "rank")
    by = ["rank", *frames.by]
    parts = units.join(frames.once(device_time).parts, on=["run_id", "device_id"], nulls_equal=True)
    idle = (pl.col("window_ns") - pl.col("busy_ns")).alias("idle_ns")
    timed = parts.with_columns(pl.col("window_ns").alias("step_ns"), idle).select(*by, *_TIMES)
    hosts = units.join(parts, on="run_id", how="anti").join(_host_steps(frames), on="run_id").select(*by, "step_ns")
    rows = pl.concat([timed, hosts.cast({"step_ns": timed.schema["step_ns"]})], how="diagonal")
    return rows.join(_waiting(frames), on=by, how="left").sort(*frames.by, "rank")


def _host_steps(frames: StepView) -> pl.DataFrame:
    if frames.choice.mode is StepMode.EACH:
        return frames.steps.select("run_id", "step", pl.col("duration_ns").alias("step_ns"))
    return frames.once(latency_by_run).select("run_id", pl.col("latency_ns").alias("step_ns"))


def _waiting(frames: StepView) -> pl.DataFrame:
    """By rank (and step) wait_ns and last_count: 0 in a step without collectives, null of a rank that is in none.

    Of a mean step waiting is over the whole steps that times are means of, and how often a rank came last over all.
    """
    rows = frames.of_chosen_steps(frames.once(waits_of))
    if not frames.is_mean:
        return waiting_by_rank(rows, tuple(frames.by)).select(*frames.by, "rank", "wait_ns", "last_count")
    kept = kept_steps(frames.steps)
    of_kept = waiting_by_rank(rows.join(kept.select("run_id", "step"), on=["run_id", "step"], how="semi"))
    wait = of_kept.join(_step_counts(frames, kept), on="rank").select(
        "rank", quotient(pl.col("wait_ns"), pl.col("steps"))
    )
    last = mean_waiting(frames).select("rank", "last_count")
    return last.join(wait, on="rank", how="left")


def mean_waiting(frames: StepView, keys: tuple[str, ...] = ()) -> pl.DataFrame:
    """`waiting_by_rank` over the steps chosen; of a mean step all sums are over the number of steps, none trimmed."""
    rows = waiting_by_rank(frames.of_chosen_steps(frames.once(waits_of)), (*frames.by, *keys))
    if not frames.is_mean:
        return rows
    sums = [name for name in rows.columns if name not in (*keys, "rank")]
    per_step = (quotient(pl.col(name), pl.col("steps")) for name in sums)
    return rows.join(_step_counts(frames, frames.steps), on="rank", maintain_order="left").select(
        *keys, "rank", *per_step
    )


def _step_counts(frames: StepView, steps: pl.DataFrame) -> pl.DataFrame:
    counts = steps.group_by("run_id").agg(pl.len().alias("steps"))
    return rank_units(frames.of_trace).join(counts, on="run_id").select("rank", "steps")


def rank_clocks(frames: StepView) -> pl.DataFrame:
    """One row a rank that collectives link to the lowest one: CLOCKS. Ranks of one run have one clock, and no row."""
    calls = frames.once(waits_of).filter("matched")
    call = pl.concat_str("operation", pl.col("step").cast(pl.String).fill_null("-"), separator=" ")
    ends = calls.select(
        "rank",
        pl.col("process_group").fill_null("").alias("group"),
        call.alias("name"),
        pl.col("number").alias("nth"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    )
    units = rank_units(frames.of_trace)
    skews = {} if units["run_id"].n_unique() < units.height else clock_skews(ends)
    rows = [(rank, skew.offset_ns, skew.spread_ns, skew.count) for rank, skew in skews.items()]
    return pl.DataFrame(rows, schema={"rank": pl.Int64(), **CLOCKS}, orient="row")


# What is said of ranks side by side, and drawn of them: of the tables of a trace, and of a job.


@dataclass(frozen=True, slots=True)
class MedianRank:
    """Medians over rows of B29 or R01, each None where nothing is known."""

    step_ns: float | None
    exposed_share: float | None  # of the step
    wait_ns: float | None


def median_rank(ranks: pl.DataFrame) -> MedianRank:
    """Of rows with step_ns and exposed_communication_ns, with wait_ns, or with all of them."""
    columns = set(ranks.columns)
    exposed = {"exposed_communication_ns", "step_ns"} <= columns
    return MedianRank(
        _median(ranks["step_ns"]) if "step_ns" in columns else None,
        _median(ranks["exposed_communication_ns"] / ranks["step_ns"]) if exposed else None,
        _median(ranks["wait_ns"]) if "wait_ns" in columns else None,
    )


def _median(values: pl.Series) -> float | None:
    middle = values.median()
    return middle if isinstance(middle, float | int) else None


def ranks_off_the_median(cells: pl.DataFrame) -> list[int]:
    """The ranks of rows with rank and step_ns, those first whose longest step is furthest from the median's."""
    longest = cells.group_by("rank").agg(pl.col("step_ns").max()).drop_nulls()
    apart = (pl.col("step_ns") - pl.col("step_ns").median()).abs()
    return longest.sort(apart, "rank", descending=[True, False])["rank"].to_list()


def longest_of_columns(cells: pl.DataFrame, columns: pl.DataFrame, measures: Iterable[str]) -> pl.DataFrame:
    """The largest value of each measure by rank and `column`, in no order; `columns` has the column of each step."""
    placed = cells.join(columns.cast({"step": cells.schema["step"]}), on="step", nulls_equal=True)
    return placed.group_by("rank", "column").agg(pl.col(list(measures)).max())


def groups_by_bytes(rates: pl.DataFrame) -> list[tuple[str, str | None]]:
    """Operation and process group of B31's rows, those first that moved most."""
    moved = (pl.col("message_bytes") * pl.col("count")).sum().alias("moved")
    groups = rates.group_by("operation", "process_group", maintain_order=True).agg(moved)
    return groups.sort("moved", descending=True).drop("moved").rows()


def matched_count(stragglers: pl.DataFrame) -> float:
    """How many collectives are matched, each counted once, by B30's rows."""
    per_group = stragglers.group_by("operation", "process_group").agg(pl.col("matched_count").max())
    return total_of(per_group["matched_count"])
