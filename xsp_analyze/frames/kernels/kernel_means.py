"""The one frame of kernel executions that every kernel table is summed from.

Its rows have a fixed order, and tables group it eagerly with `maintain_order` (a lazy plan drops that before a sort):
the threads of a sum of Float64 would else show in its last digit, and two runs would not print the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import quotient, trimmed_count
from xsp_analyze.frames.group_ids import first_rows, group_ids, numbers_by_appearance, positions_in, run_starts, sort_by
from xsp_analyze.frames.kernels.activities import (
    are_known,
    attach_counters,
    counted_launches,
    counter_columns,
    shapes_of,
    share_among_layers,
    summed_columns,
)
from xsp_analyze.frames.kernels.kernel_classes import kernel_classes
from xsp_analyze.frames.steps import step_counts

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "align_steps",
    "chosen_activities",
    "counted_work",
    "kernel_executions",
    "launches_alone",
    "layer_executions",
    "named_work",
    "step_work",
    "with_calls",
]

# What makes two device activities of different steps the same one, besides being the n-th such in its step.
_SIGNATURE = ("run_id", "process_id", "device_id", "attribution", "layer_index", "layer_name", "kind", "name", "shape")
_LABELS = ("run_id", "process_id", "device_id", "stream_id", "kind", "name", "kernel_class", "phase", "attribution")
_LAYER = ("layer_index", "layer_name", "layer_type")
_MIN_TRIMMED = 3  # below, a trimmed mean keeps all


def counted_work(view: TraceView) -> pl.DataFrame:
    """`device_work` with counters."""
    return attach_counters(view.trace, view.device_work)


def with_calls(view: TraceView, rows: pl.DataFrame) -> pl.DataFrame:
    """The activities with `count`: 1, but of reports of sums as many calls as the file says that each row is of."""
    if view.has_starts or view.is_one_by_one:
        return rows.with_columns(pl.lit(1, pl.Int64).alias("count"))
    summed = view.trace.scan("metrics").filter(pl.col("metric").cast(pl.String) == "invocations")
    calls = summed.select("span_id", pl.col("value").cast(pl.Int64).alias("count")).unique("span_id").collect()
    joined = rows.join(calls, on="span_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("count").fill_null(1))


def named_work(view: StepView) -> pl.DataFrame:
    """What tables over kernel names are summed from: of `kernel_executions` labels of `device_work` and all numbers.

    Of whole steps it takes no links to be known.
    """
    if view.is_mean:
        return view.once(kernel_executions)
    rows = with_calls(view.of_trace, view.of_chosen_steps(view.of_trace.once(counted_work)))
    return rows.rename({"name": "kernel_name"})


def chosen_activities(view: StepView) -> pl.DataFrame:
    """The device activities of the steps chosen; of a mean step also aligned, see `align_steps`."""
    return _of_steps(view, view.of_trace.all_activities)


def _of_steps(view: StepView, activities: pl.DataFrame) -> pl.DataFrame:
    if not view.is_mean:
        return view.of_chosen_steps(activities)
    return align_steps(activities.with_columns(shapes_of(view.trace, activities)), view.steps)


def launches_alone(view: TraceView) -> pl.DataFrame:
    """The `counted_launches` of a trace that has no device work; nothing where it has some."""
    launches = counted_launches(view.trace)
    launches = launches if view.all_activities.is_empty() else launches.clear()
    return launches.hstack(kernel_classes(view.trace, launches))


def step_work(view: StepView) -> pl.DataFrame:
    """The activities chosen with `work_ns` and `work_count`, whose sums over any group are what a step holds.

    Of whole steps they are the duration and the calls, see `with_calls`; of a mean step `mean_ns` and one over the
    steps of the run.
    """
    rows = view.once(chosen_activities)
    if not view.is_mean:
        return with_calls(view.of_trace, rows).with_columns(work_ns="duration_ns").rename({"count": "work_count"})
    return rows.with_columns(pl.col("mean_ns").alias("work_ns"), (1 / pl.col("step_count")).alias("work_count"))


def kernel_executions(view: StepView) -> pl.DataFrame:
    """One row an execution of a kernel, copy or memset (of a mean step, where averaged): what tables are summed from.

    `kind` tells them apart, and `layer_executions` has those of layers. Labels, layer, `count`, times, counters,
    `order_ns`, `span_id` of the first. Of whole steps every activity, `with_calls`, exact ns. Of a mean step
    duration_ns is the trimmed mean over the steps that hold it, times the share of steps that do (`count`). Without
    device work each counted launch stands for its kernel.
    """
    launches = view.of_trace.once(launches_alone)
    rows = view.once(chosen_activities) if launches.is_empty() else _of_steps(view, launches)
    return _mean_executions(rows) if view.is_mean else _each_execution(with_calls(view.of_trace, rows))


def layer_executions(view: StepView) -> pl.DataFrame:
    """`kernel_executions` as sums over layers take them: a kernel that layers share is a row for each of them."""
    rows = view.once(kernel_executions)
    amounts = tuple(summed_columns(rows))
    return share_among_layers(view.trace, rows, time="duration_ns", count="count", by_weight=amounts)


def align_steps(activities: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The activities of the steps, tied to the same ones in other steps, each with its part of the mean step.

    `activities` have `shape`, see `activities.shapes_of`. Adds `execution` (one number for the aligned activities),
    `present` (k: in how many steps it is), `step_count` (n: steps of the run), `kept` (whether the trimmed mean keeps
    it), `offset_ns` (launch from the step's start) and `mean_ns`: its share of the execution's duration in a mean step,
    so that sums of `mean_ns` over any group of activities are what the group takes per step.
    """
    inside, step = _in_steps(activities, steps.join(step_counts(steps), on="run_id", maintain_order="left"))
    number, kept = _executions_of(inside)
    present = np.bincount(number)[number]
    dropped = trimmed_count(pl.col("present"))
    weight = quotient(pl.col("present"), pl.col("step_count") * (pl.col("present") - 2 * dropped))
    return (
        inside.hstack(
            [
                step["step_count"],
                (inside["launch_ns"] - step["start_ns"]).alias("offset_ns"),
                pl.Series("execution", number),
                pl.Series("present", present),
                pl.Series("kept", kept),
            ]
        )
        .with_columns(pl.when("kept").then(pl.col("duration_ns") * weight).otherwise(0.0).alias("mean_ns"))
        .drop("shape")
    )


def _in_steps(activities: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The activities that are in one of the steps, and the step of each."""
    at = positions_in(steps, activities, ("run_id", "step"))
    inside = at >= 0
    if not inside.all():
        activities, at = activities.filter(pl.Series(inside)), at[inside]
    return activities, steps.select("step_count", "start_ns")[at]


def _executions_of(inside: pl.DataFrame) -> tuple[Ints, Bools]:
    """For each row its execution, and whether the trimmed mean over the steps that hold it keeps the row."""
    signature, rows = numbers_by_appearance(*group_ids(inside.select(_SIGNATURE)))
    # Rows stand in order of start, so a stable sort by the rest puts them in order of signature, step, launch, start.
    launched = sort_by(*group_ids([inside["launch_ns"]]))
    cell, size = group_ids([pl.Series(signature), inside["step"]])
    order = launched[sort_by(cell[launched], size)]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = _ranks_in_runs(run_starts(cell[order]), len(order))
    max_count = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(max_count, signature, rank + 1)
    number = (np.cumsum(max_count) - max_count)[signature] + rank
    return number, _is_kept(number, inside["duration_ns"].to_numpy())


def _ranks_in_runs(starts: Ints, count: int) -> Ints:
    """For each row its rank, from 0, in its run of rows."""
    return np.arange(count, dtype=np.int64) - np.repeat(starts, np.diff(np.append(starts, count)))


def _is_kept(number: Ints, duration_ns: Ints) -> Bools:
    """Whether a trimmed mean over the rows of each number, by duration and then in their order, keeps the row."""
    kept = np.ones(len(number), dtype=np.bool_)
    present = np.bincount(number)[number]
    rows = np.flatnonzero(present >= _MIN_TRIMMED)
    if not len(rows):
        return kept
    shortest = sort_by(*group_ids([pl.Series(duration_ns[rows])]))
    of, size = numbers_by_appearance(*group_ids([pl.Series(number[rows])]))[0], len(rows)
    order = shortest[sort_by(of[shortest], size)]
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = _ranks_in_runs(run_starts(of[order]), len(rows))
    count = present[rows]
    dropped = pl.DataFrame({"count": count}).select(trimmed_count(pl.col("count"))).to_series().to_numpy()
    kept[rows] = (rank >= dropped) & (rank < count - dropped)
    return kept


def _each_execution(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        "span_id", "step", *_LABELS, *_LAYER, "count", "duration_ns",
        *counter_columns(rows), pl.col("launch_ns").alias("order_ns"), "start_ns",
    ).rename({"name": "kernel_name"})  # fmt: skip


def _mean_executions(rows: pl.DataFrame) -> pl.DataFrame:
    number = rows["execution"].to_numpy()
    total = int(number.max(initial=-1)) + 1
    first = first_rows(number, total)
    firsts = rows[first]
    present = pl.Series(np.bincount(number, minlength=total)) / firsts["step_count"]
    offset = np.full(total, np.iinfo(np.int64).max)
    np.minimum.at(offset, number, rows["offset_ns"].to_numpy())
    return firsts.select(
        *("span_id", *_LABELS, *_LAYER),
        present.alias("count"),
        (_mean_kept(rows, number, total) * present).alias("duration_ns"),
        *_mean_counters(rows, present),
        pl.Series("order_ns", offset),
        "start_ns",
    ).rename({"name": "kernel_name"})


def _mean_kept(rows: pl.DataFrame, number: Ints, total: int) -> pl.Series:
    """The mean duration, over what the trimmed mean keeps, of each execution."""
    kept = rows["kept"].to_numpy()
    duration = np.bincount(number, weights=np.where(kept, rows["duration_ns"].to_numpy(), 0), minlength=total)
    return pl.Series(duration / np.bincount(number, weights=kept, minlength=total))


def _mean_counters(rows: pl.DataFrame, present: pl.Series) -> list[pl.Series]:
    """The columns of counters of each execution: sums for the share of steps that it is in, occupancy as it is."""
    columns = counter_columns(rows)
    if not are_known(rows):
        return [pl.Series(c, [None], dtype=pl.Float64).new_from_index(0, len(present)) for c in columns]
    means = rows.group_by("execution", maintain_order=True).agg(pl.col(columns).mean()).sort("execution")
    summed = summed_columns(rows)
    return [*(means[c] * present for c in summed), *(means[c] for c in columns if c not in summed)]
