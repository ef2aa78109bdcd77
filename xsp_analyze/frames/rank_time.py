"""What each rank did with its time, over the steps chosen, and how far its clock is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import quotient
from xsp_analyze.frames.collectives import operations
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.model_time import latency_by_run
from xsp_analyze.frames.rank_units import rank_units
from xsp_analyze.frames.rank_waits import waiting_by_rank, with_waits
from xsp_analyze.frames.steps import StepMode, kept_steps
from xsp_model.clock_skew import clock_skews

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["CLOCKS", "mean_waiting", "rank_clocks", "rank_times", "waits_of"]

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
    rows = frames.chosen(frames.once(waits_of))
    if not frames.averaged:
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
    rows = waiting_by_rank(frames.chosen(frames.once(waits_of)), (*frames.by, *keys))
    if not frames.averaged:
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
