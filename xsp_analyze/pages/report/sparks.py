"""Values of every step, which the tiles of the first screen draw as a line: latency, busy share, memory, coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.catalog import result
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.device_time import class_time, device_windows
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.text.units import count_of
from xsp_model import Attribution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.service.answers import Answers
    from xsp_analyze.trace.runs import Runs

__all__ = ["busy_by_step", "coverage_by_step", "latency_by_step", "mfu_by_step", "peak_memory_by_step", "spark"]

_MIN_STEPS = 2
_MAX_MARKS = 60  # of a line; of more steps each mark is of several


def latency_by_step(answers: Answers) -> pl.DataFrame:
    """Step and value, in ns: the mean over the runs that latency is taken from."""
    each = answers.per_step.of_each_step
    return each.once(latency_of_model).select("step", pl.col("latency_ns").cast(pl.Float64).alias("value"))


def busy_by_step(answers: Answers) -> pl.DataFrame:
    """Step and value: the share of the time of all devices in which they worked."""
    each = answers.per_step.of_each_step
    windows = device_windows(each).group_by("step").agg((pl.col("end_ns") - pl.col("begin_ns")).sum().alias("window"))
    busy = each.once(class_time).group_by("step").agg(pl.col("time_ns").sum())
    shares = windows.filter(pl.col("window") > 0).join(busy, on="step", how="left")
    return shares.select("step", quotient(pl.col("time_ns").fill_null(0), pl.col("window")).alias("value"))


def coverage_by_step(answers: Answers) -> pl.DataFrame:
    """Step and value: the share of device time that is tied to a layer."""
    in_layer = (pl.col("attribution") == str(Attribution.LAYER)).fill_null(value=False)
    time = pl.col("duration_ns")
    return (
        answers.per_step.of_trace.all_activities.filter(pl.col("step").is_not_null())
        .group_by("step")
        .agg(time.sum().alias("all"), time.filter(in_layer).sum().alias("tied"))
        .filter(pl.col("all") > 0)
        .select("step", quotient(pl.col("tied"), pl.col("all")).alias("value"))
    )


def mfu_by_step(answers: Answers) -> pl.DataFrame:
    """Step and value: model flop utilisation as B24 has it; no rows for a profile, whose runs have other steps."""
    if answers.is_leveled or not answers.step_count:
        return pl.DataFrame(schema={"step": pl.Int64, "value": pl.Float64})
    each = result(answers.per_step.of_each_step, "B24").table
    return each.filter(pl.col("scope") == "model").select("step", pl.col("mfu").alias("value")).drop_nulls()


def peak_memory_by_step(answers: Answers, series: Mapping[str, Any]) -> pl.DataFrame:
    """Step and value, in bytes: the most of one series of B09 while the step's range was open on the host."""
    samples = (
        answers.trace.scan("counters")
        .filter(
            pl.col("run_id") == series["run_id"],
            pl.col("device_id").eq_missing(pl.lit(series["device_id"], pl.Int64)),
            pl.col("counter").cast(pl.String) == series["counter"],
        )
        .select("time_ns", "value")
        .sort("time_ns")
        .collect()
    )
    time, value = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    of_run = answers.per_step.every_step.filter(pl.col("run_id") == series["run_id"])
    start = of_run["start_ns"].to_numpy()
    first = np.maximum(np.searchsorted(time, start, side="right") - 1, 0)  # what was held as the step began counts
    last = np.searchsorted(time, start + of_run["host_ns"].to_numpy(), side="right")
    peaks = [float(value[i:j].max()) if i < j else None for i, j in zip(first, last, strict=True)]
    return of_run.select("step").with_columns(pl.Series("value", peaks, dtype=pl.Float64)).drop_nulls()


def spark(answers: Answers, values: pl.DataFrame, runs: Runs, shown: Callable[[float], str]) -> dict[str, Any] | None:
    """The line over steps: a value a mark, and which are of ramp-up; None where fewer than two steps have one.

    `runs` are those that the values are of: profilers' stubs of steps are left out by them. Marks of many steps are
    means of several.
    """
    frames = answers.per_step
    if not frames.averaged:
        return None
    worked, kept = (set(runs.of(steps)["step"]) for steps in (frames.worked_steps, frames.steps))
    rows = values.filter(pl.col("step").is_in(list(worked))).sort("step")
    if rows.height < _MIN_STEPS:
        return None
    rows = rows.with_columns(pl.col("step").is_in(list(kept)).not_().alias("is_left_out"))
    per_mark = -(-rows.height // _MAX_MARKS)
    marks = (
        rows.with_row_index("row")
        .group_by(pl.col("row") // per_mark, maintain_order=True)
        .agg(pl.col("step").first(), pl.col("value").mean(), pl.col("is_left_out").all())
    )
    return {
        "values": marks["value"].to_list(),
        "left_out": marks["is_left_out"].to_list(),
        "texts": [
            f"{_mark_name(int(step), per_mark)}: {shown(value)}{', ramp-up, left out of the mean' if left_out else ''}"
            for step, value, left_out in marks.select("step", "value", "is_left_out").iter_rows()
        ],
        "text": _line_description(rows, per_mark, shown),
    }


def _mark_name(step: int, per_mark: int) -> str:
    return f"step {step}" if per_mark == 1 else f"{per_mark} steps from {step} on, mean"


def _line_description(rows: pl.DataFrame, per_mark: int, shown: Callable[[float], str]) -> str:
    """What the line says, for who does not see it."""
    low, high = (float(v) for v in rows.select(pl.col("value").min(), pl.col("value").max().alias("high")).row(0))
    left_out = int(rows["is_left_out"].sum())
    ramp_up = f"; {count_of(left_out, 'step', 'steps')} of ramp-up, paler, left out of the mean" if left_out else ""
    marks = f"; a mark is the mean of {per_mark} steps" if per_mark > 1 else ""
    return f"Over {count_of(rows.height, 'step', 'steps')}: {shown(low)} to {shown(high)}{ramp_up}{marks}."
