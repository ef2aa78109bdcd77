"""Who waits for whom: collectives matched between ranks, what each rank did meanwhile, and which ranks are late."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.collectives import PAIRWISE, operations, rank_units
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.steps import StepMode, kept_steps
from xsp_model import Kind
from xsp_model.clock_skew import clock_skews

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "CALL",
    "CLOCKS",
    "FEW_CALLS",
    "GROUP",
    "SENT",
    "MedianRank",
    "groups_by_bytes",
    "is_beyond_chance",
    "late_ranks",
    "late_ranks_of",
    "longest_of_columns",
    "matched_count",
    "mean_waiting",
    "means_by_rank",
    "median_rank",
    "rank_clocks",
    "rank_kernels",
    "rank_times",
    "ranks_off_the_median",
    "slowdown_of",
    "waiting_by_rank",
    "waits_of",
    "with_waits",
]

# Who waits for whom: collectives matched between ranks, from one trace or from the tables of many.
GROUP = ("operation", "process_group")
CALL = ("step", "meeting", "process_group", "number")
"""What makes a collective on two ranks one call: the n-th of its operation (or of its two ranks) in group and step."""
SENT = ("sent_bytes", "received_bytes")
Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def with_waits(rows: Rows) -> Rows:
    """Collectives (rank, operation, CALL, duration_ns) with what matching them between ranks tells of each.

    `matched`: every rank of its group ran the call, if there are several; where no group is recorded, every rank that
    runs the operation; of a send and its receive both. All ranks leave a collective together, so that the shortest is
    that of the rank that came last: `transfer_ns` is its time, `wait_ns` what the row took beyond that, both null where
    nothing is matched. No clock is compared. `last_share` is 1 where the row's rank came last, a part of it where
    others came as late, else 0; of a send or receive 0, as one of two always does (`frames.pipelines` says why).
    """
    rank, duration, here = pl.col("rank").n_unique(), pl.col("duration_ns"), pl.col("here")
    ungrouped = pl.when(pl.col("process_group").is_null()).then("operation")  # who takes part is not known
    ranks = rank.over("process_group", ungrouped)
    is_linked = pl.col("meeting") != pl.col("operation")
    is_pair = is_linked | pl.col("operation").is_in(PAIRWISE)
    is_of_all = (here == ranks) & (ranks > 1)
    # Of sends and receives between ranks that are not known the n-th are one call only if all ranks ran as many.
    as_many = here.min().over("step", "meeting", "process_group") == ranks
    matched = (
        pl.when(is_pair)
        .then(is_linked & (here == 2))  # noqa: PLR2004 (a pair)
        .otherwise(is_of_all & ((pl.col("operation") != "send_recv") | as_many))
    )
    shortest = pl.when("matched").then(duration.min().over(CALL))
    is_shortest = (duration == pl.col("transfer_ns")).fill_null(value=False)
    share = pl.when("is_shortest", ~is_pair).then(1 / pl.col("is_shortest").sum().over(CALL)).otherwise(0.0)
    return (
        rows.with_columns(rank.over(CALL).alias("here"))
        .with_columns(matched.alias("matched"))
        .with_columns(shortest.alias("transfer_ns"))
        .with_columns((duration - pl.col("transfer_ns")).alias("wait_ns"), is_shortest.alias("is_shortest"))
        .with_columns(share.alias("last_share"))
        .drop("is_shortest", "here")
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
            *(pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()).alias(c) for c in SENT if c in waits.columns),
            *(pl.when(is_matched).then(value).alias(name) for name, value in sums.items()),
        )
    )


# What each rank did with its time, over the steps chosen, and how far its clock is off.
CLOCKS = {
    "clock_offset_ns": pl.Int64(), "clock_spread_ns": pl.Int64(), "clock_count": pl.Int64(),
    "clock_drift_ns_per_s": pl.Float64(),
}  # fmt: skip
_TIMES = ("step_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")


def waits_of(frames: StepView) -> pl.DataFrame:
    """The collectives of all steps, see `operations`, with what `with_waits` tells of each.

    A receive whose send is not recorded has `transfer_ns` from when its sender's last work before it ended, and
    `matched`: the median over the calls of its two ranks that it waited in, over both directions, in which a difference
    of clocks cancels. What took less had arrived before; its transfer is what it took.
    """
    rows = _with_times_of_mail(with_waits(frames.of_trace.once(operations)))
    alone = rows.filter(pl.col("operation") == "recv", ~pl.col("matched"), pl.col("meeting").str.contains(">"))
    if alone.is_empty():
        return rows
    times = _transfer_times(frames.of_trace, alone)
    timed = rows.join(times, on=["meeting", "input_bytes"], how="left", nulls_equal=True, maintain_order="left")
    is_one = (pl.col("operation") == "recv") & ~pl.col("matched") & pl.col("alone_ns").is_not_null()
    transfer = pl.when(is_one).then(pl.min_horizontal("duration_ns", "alone_ns")).otherwise("transfer_ns")
    return (
        timed.with_columns(transfer.alias("transfer_ns"), pl.col("matched") | is_one)
        .with_columns((pl.col("duration_ns") - pl.col("transfer_ns")).alias("wait_ns"))
        .drop("alone_ns")
    )


def _with_times_of_mail(rows: pl.DataFrame) -> pl.DataFrame:
    """On the host a send does not wait for its receive: the transfer ends with the receive, from when both had begun.

    It takes both clocks for one, as a rate of what the ranges take would hold the time until somebody looked.
    """
    is_one = pl.col("device_id").is_null() & pl.col("operation").is_in(PAIRWISE) & pl.col("matched")
    is_receive = pl.col("operation") == "recv"
    end = (pl.col("start_ns") + pl.col("duration_ns")).filter(is_receive).first().over(CALL)
    longest = pl.col("duration_ns").filter(is_receive).first().over(CALL)
    transfer = (end - pl.col("start_ns").max().over(CALL)).clip(0, longest)
    wait = pl.when(is_receive).then(longest - transfer)
    return rows.with_columns(
        pl.when(is_one).then(transfer).otherwise("transfer_ns").alias("transfer_ns"),
        pl.when(is_one).then(wait).otherwise("wait_ns").alias("wait_ns"),
    )


def _transfer_times(frames: TraceView, receives: pl.DataFrame) -> pl.DataFrame:
    """meeting, input_bytes, alone_ns: from the end of the sender's work to that of the receive, as `waits_of` says."""
    units = rank_units(frames).select("rank", pl.col("run_id").alias("run"), pl.col("device_id").alias("device"))
    compute = frames.all_activities.filter(pl.col("kind") == str(Kind.KERNEL), ~IS_COMMUNICATION)
    work = compute.select("run_id", "device_id", (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"))
    ends = (
        units.join(work, left_on=["run", "device"], right_on=["run_id", "device_id"], nulls_equal=True)
        .select(pl.col("rank").alias("sender"), pl.col("end_ns").alias("done_ns"), "end_ns")
        .sort("end_ns")
    )
    sender = pl.col("meeting").str.extract(r"^(\d+)>").cast(pl.Int64).alias("sender")
    arrived = receives.with_columns(sender, (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")).sort("end_ns")
    matched = arrived.join_asof(ends, on="end_ns", by="sender", check_sortedness=False)
    waited = matched.filter(pl.col("done_ns") > pl.col("start_ns"), pl.col("done_ns") < pl.col("end_ns"))
    one_way = waited.group_by("meeting", "input_bytes").agg((pl.col("end_ns") - pl.col("done_ns")).median())
    both = pl.col("meeting").str.split(">").list.sort().list.join("-")
    return one_way.with_columns(pl.col("end_ns").mean().over(both, "input_bytes").round().cast(pl.Int64)).rename(
        {"end_ns": "alone_ns"}
    )


def rank_times(frames: StepView) -> pl.DataFrame:
    """One row a rank (and step, where each is answered), in order: _TIMES, wait_ns, last_count and SENT.

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
    """By rank (and step) wait_ns, last_count and SENT: 0 in a step without collectives, null of a rank that is in none.

    Of a mean step waiting is over the whole steps that times are means of, and how often a rank came last over all.
    """
    rows = frames.of_chosen_steps(frames.once(waits_of))
    if not frames.is_mean:
        return waiting_by_rank(rows, tuple(frames.by)).select(*frames.by, "rank", "wait_ns", "last_count", *SENT)
    kept = kept_steps(frames.steps)
    of_kept = waiting_by_rank(rows.join(kept.select("run_id", "step"), on=["run_id", "step"], how="semi"))
    wait = of_kept.join(_step_counts(frames, kept), on="rank").select(
        "rank", quotient(pl.col("wait_ns"), pl.col("steps"))
    )
    last = mean_waiting(frames).select("rank", "last_count", *SENT)
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
    calls = frames.once(waits_of).filter("matched", pl.col("meeting") == pl.col("operation"))
    call = pl.concat_str("meeting", pl.col("step").cast(pl.String).fill_null("-"), separator=" ")
    ends = calls.select(
        "rank",
        pl.col("process_group").fill_null("").alias("group"),
        call.alias("name"),
        pl.col("number").alias("nth"),
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"),
    )
    units = rank_units(frames.of_trace)
    skews = {} if units["run_id"].n_unique() < units.height else clock_skews(ends)
    rows = [(rank, s.offset_ns, s.spread_ns, s.count, s.drift_ns_per_s) for rank, s in skews.items()]
    return pl.DataFrame(rows, schema={"rank": pl.Int64(), **CLOCKS}, orient="row")


# Ranks that others wait for, told from chance.
_UNLIKELY = 0.01  # that so much waiting is for any one of the ranks, if each call were for any of them
_MIN_CALLS = 2.0  # one that takes nearly all of the waiting tells of no rank
FEW_CALLS = 10
"""Of fewer calls chance says little; they are told as they are."""
_HALF = 0.5
_NEARLY_ALL = 0.9
_SLOWER = 0.01


def is_beyond_chance(part: float, calls: float, ranks: int) -> bool:
    """Whether this part of the waiting of so many calls is more than chance gives one rank.

    Chernoff's bound on the binomial tail, times the ranks, one of which it is.
    """
    turn = 1 / max(ranks, 1)
    if ranks < 2 or part <= turn:  # noqa: PLR2004 (a pair)
        return False
    rest = 0.0 if part >= 1 else (1 - part) * log((1 - part) / (1 - turn))
    return calls * (part * log(part / turn) + rest) > log(ranks / _UNLIKELY)


def late_ranks(waits: pl.DataFrame) -> pl.DataFrame:
    """One row a rank that most of the waiting of its group is for, most waited for first.

    process_group, rank, last_count, calls, ranks, waited_for_ns, waited_share (of all waiting of the group) and
    effective_calls: so many calls of equal waiting would vary as much, so that one long call counts as one. `waits` as
    `with_waits` has them. Left out is what chance explains; of fewer than FEW_CALLS effective ones what is less than
    half again of its turn, or in fewer than two, unless it is as much without the longest call; and ranks that are late
    since they waited themselves as long.
    """
    met = waits.filter("matched", pl.col("meeting") == pl.col("operation"))
    group, wait = pl.col("process_group"), pl.col("wait_ns").sum().cast(pl.Float64).over(CALL)
    once = pl.int_range(pl.len()).over(CALL) == 0
    calls = met.with_columns(wait.alias("call_ns"), once.alias("once"))
    is_longest = pl.col("call_ns") == pl.col("call_ns").max().over("process_group")
    calls = calls.with_columns(pl.when(~is_longest).then("call_ns").otherwise(0.0).alias("kept_ns"))
    of_group = calls.filter("once").group_by("process_group").agg(
        pl.col("call_ns").sum().alias("all_ns"), pl.col("kept_ns").sum(),
        pl.col("call_ns").pow(2).sum().alias("squares"), pl.col("kept_ns").pow(2).sum().alias("kept_squares"),
    )  # fmt: skip
    by_rank = calls.group_by("process_group", "rank").agg(
        (pl.col("last_share") == 1).sum().cast(pl.Int64).alias("last_count"),
        pl.len().cast(pl.Int64).alias("calls"),
        (pl.col("call_ns") * pl.col("last_share")).sum().alias("waited_for_ns"),
        (pl.col("kept_ns") * pl.col("last_share")).sum().alias("own_kept_ns"),
    )
    rows = by_rank.join(of_group, on="process_group", nulls_equal=True).with_columns(
        pl.len().over(group).cast(pl.Int64).alias("ranks"),
        (pl.col("waited_for_ns") / pl.col("all_ns")).alias("waited_share"),
        (pl.col("all_ns").pow(2) / pl.col("squares")).alias("effective_calls"),
        (pl.col("kept_ns").pow(2) / pl.col("kept_squares")).alias("kept_calls"),
        (pl.col("own_kept_ns") / pl.col("kept_ns")).alias("kept_share"),
    )
    rows = rows.filter(pl.col("all_ns") > 0, pl.col("waited_share") >= _HALF)
    tests = rows.select("waited_share", "effective_calls", "kept_share", "kept_calls", "ranks")
    keep = [_is_late(a, n, ranks) or _is_late(b, m, ranks) for a, n, b, m, ranks in tests.iter_rows()]
    rows = rows.drop("all_ns", "squares", "kept_ns", "own_kept_ns", "kept_share", "kept_calls", "kept_squares")
    own = met.group_by("rank").agg(pl.col("wait_ns").sum().alias("own_ns"))
    kept = rows.filter(pl.Series(keep, dtype=pl.Boolean)).join(own, on="rank")
    is_first = pl.col("own_ns") < _HALF * pl.col("waited_for_ns") / (pl.col("ranks") - 1)
    kept = kept.filter(is_first).drop("own_ns")
    return kept.sort("waited_for_ns", "rank", descending=[True, False])


def _is_late(part: float, calls: float, ranks: int) -> bool:
    if not calls >= _MIN_CALLS or part < (1 + 1 / ranks) / 2:
        return False
    return is_beyond_chance(part, calls, ranks) if calls >= FEW_CALLS else calls >= _MIN_CALLS


def slowdown_of(rank: int, kernels: pl.DataFrame) -> float | None:
    """How much longer the same kernels take on it; None where it runs others, more, or only a few are slower."""
    median = (
        kernels.filter(pl.col("rank") != rank)
        .group_by("kernel_name")
        .agg(pl.col("count").median().alias("usual_count"), pl.col("duration_ns").median().alias("usual_ns"))
    )
    own = kernels.filter(pl.col("rank") == rank).join(median, on="kernel_name", how="left").drop_nulls("usual_ns")
    total = float(kernels.filter(pl.col("rank") == rank)["duration_ns"].sum())
    same = own.filter(pl.col("count") == pl.col("usual_count"))
    if not total or same["duration_ns"].sum() < _NEARLY_ALL * total:
        return None
    slowdown = float(same["duration_ns"].sum()) / float(same["usual_ns"].sum()) - 1
    slower = same.filter(pl.col("duration_ns") > (1 + max(slowdown / 2, _SLOWER)) * pl.col("usual_ns"))
    return slowdown if slower["duration_ns"].sum() >= _NEARLY_ALL * total else None


def rank_kernels(frames: StepView) -> pl.DataFrame:
    """How often and how long each rank ran each kernel that computes: rank, kernel_name, count, duration_ns."""
    units = rank_units(frames.of_trace).select("run_id", "device_id", "rank")
    work = frames.of_trace.all_activities.filter(pl.col("kind").cast(pl.String) == "kernel", ~IS_COMMUNICATION)
    return (
        work.join(units, on=["run_id", "device_id"], nulls_equal=True)
        .group_by("rank", pl.col("name").cast(pl.String).alias("kernel_name"))
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("duration_ns").sum())
    )


def late_ranks_of(frames: StepView) -> pl.DataFrame:
    """`late_ranks` over all steps of a trace."""
    return late_ranks(frames.once(waits_of))


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


def means_by_rank(cells: pl.DataFrame, measures: Iterable[str]) -> pl.DataFrame:
    """The mean of each measure by rank, in order."""
    return cells.group_by("rank").agg(pl.col(list(measures)).mean()).sort("rank")


def groups_by_bytes(rates: pl.DataFrame) -> list[tuple[str, str | None]]:
    """Operation and process group of B31's rows, those first that moved most."""
    moved = (pl.col("message_bytes") * pl.col("count")).sum().alias("moved")
    groups = rates.group_by("operation", "process_group", maintain_order=True).agg(moved)
    return groups.sort("moved", descending=True).drop("moved").rows()


def matched_count(stragglers: pl.DataFrame) -> float:
    """How many collectives are matched, each counted once, by B30's rows."""
    per_group = stragglers.group_by("operation", "process_group").agg(pl.col("matched_count").max())
    return total_of(per_group["matched_count"])
