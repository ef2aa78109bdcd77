"""What each rank did with its time, how far its clock is off, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import polars as pl

from xsp_analyze.formulas import quotient
from xsp_analyze.frames.collectives import operations, rank_units
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.steps import StepMode, kept_steps
from xsp_model.clock_skew import clock_skews

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = [
    "CALL",
    "CLOCKS",
    "GROUP",
    "PAIRWISE",
    "mean_waiting",
    "rank_clocks",
    "rank_times",
    "waiting_by_rank",
    "waits_of",
    "with_waits",
]

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
