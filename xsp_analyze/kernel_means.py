"""The one frame of kernel executions that every kernel table is summed from.

Its rows have a fixed order, and tables group it eagerly with `maintain_order` (a lazy plan drops that before a sort):
the threads of a sum of Float64 would else show in its last digit, and two runs would not print the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.activities import AXES
from xsp_analyze.counters import counter_columns, summed_columns
from xsp_analyze.formulas import trimmed_count
from xsp_analyze.steps import step_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_model.arrays import Bools, Ints

__all__ = ["aligned", "executions"]

# What makes two device activities of different steps the same one, besides being the n-th such in its step.
_SIGNATURE = ("run_id", "process_id", "device_id", "attribution", "layer_index", "layer_name", "kind", "name", *AXES)
_LABELS = ("run_id", "process_id", "device_id", "stream_id", "kind", "name", "phase", "attribution")
_LAYER = ("layer_index", "layer_name", "layer_type")


def aligned(activities: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The activities of the steps, tied to the same ones in other steps, each with its part of the mean step.

    Adds `execution` (one number for the aligned activities), `present` (k: in how many steps it is), `step_count`
    (n: steps of the run), `kept` (whether the trimmed mean keeps it), `offset_ns` (launch from the step's start)
    and `mean_ns`: its share of the execution's duration in a mean step, so that sums of `mean_ns` over any group
    of activities are what the group takes per step.
    """
    starts = steps.select("run_id", "step", pl.col("start_ns").alias("step_start_ns"))
    inside = (
        activities.join(starts, on=["run_id", "step"], maintain_order="left")
        .join(step_counts(steps), on="run_id", maintain_order="left")
        .with_columns((pl.col("launch_ns") - pl.col("step_start_ns")).alias("offset_ns"))
        .drop("step_start_ns")
    )
    dropped = trimmed_count(pl.col("present"))
    kept = (pl.col("rank") >= dropped) & (pl.col("rank") < pl.col("present") - dropped)
    weight = pl.col("present") / (pl.col("step_count") * (pl.col("present") - 2 * dropped))
    return (
        inside.hstack(_executions_of(inside))
        .with_columns(kept.alias("kept"))
        .with_columns(pl.when("kept").then(pl.col("duration_ns") * weight).otherwise(0.0).alias("mean_ns"))
        .drop("rank")
    )


def _executions_of(inside: pl.DataFrame) -> pl.DataFrame:
    """For each row its execution, in how many steps that is present, and the row's rank by duration among these."""
    # Rows stand in order of start, so a stable sort by the rest puts them in order of signature, step, launch, start.
    keys = inside.select("step", "launch_ns", "duration_ns").with_row_index("row")
    keys = keys.with_columns(_signatures(inside)).sort("signature", "step", "launch_ns", maintain_order=True)
    place = _place_in_run(_changes(keys, "signature", "step"), keys.height)
    keys = keys.with_columns(pl.Series("place", place)).sort("signature", "place", "duration_ns", "row")
    changed = _changes(keys, "signature", "place")
    rank = _place_in_run(changed, keys.height)
    number = np.concatenate(([0], np.cumsum(changed)))[: keys.height]
    present = np.bincount(number)[number] if keys.height else number
    rows = keys["row"].to_numpy()
    return pl.DataFrame(
        {n: _put_back(rows, v) for n, v in (("execution", number), ("rank", rank), ("present", present))}
    )


def _put_back(rows: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """The values in the order of rows: `rows[i]` says where the i-th belongs."""
    out = np.empty_like(values)
    out[rows] = values
    return out


def _signatures(inside: pl.DataFrame) -> pl.Series:
    """A number for each row, the same for rows that may be one execution in different steps."""
    groups = inside.select(_SIGNATURE).with_row_index("row").group_by(_SIGNATURE, maintain_order=True).agg("row")
    rows = groups.select("row").with_row_index("signature").explode("row")
    if rows.height != inside.height:  # no group at all explodes into one row of nulls
        return pl.Series("signature", [], dtype=pl.UInt32)
    return pl.Series("signature", _put_back(rows["row"].to_numpy(), rows["signature"].to_numpy()))


def _changes(keys: pl.DataFrame, *columns: str) -> Bools:
    """Whether row i + 1 differs from row i in any of the columns."""
    differ = np.zeros(max(keys.height - 1, 0), dtype=np.bool_)
    for column in columns:
        values = keys[column].to_numpy()
        differ |= values[1:] != values[:-1]
    return differ


def _place_in_run(changed: Bools, count: int) -> Ints:
    """For each row its place, from 0, in the run of equal rows it belongs to; `changed[i]`: row i + 1 starts one."""
    place = np.arange(count, dtype=np.int64)
    starts = np.where(np.concatenate(([True], changed))[:count], place, 0)
    return place - np.maximum.accumulate(starts)


def executions(rows: pl.DataFrame, *, averaged: bool) -> pl.DataFrame:
    """One row a kernel execution: labels, layer, `count`, `duration_ns`, counters, `order_ns`, `span_id` of the first.

    Not averaged: every activity, count 1, exact ns. Averaged: `rows` come from `aligned`; duration_ns is the trimmed
    mean over the steps that hold it, times the share of steps that do (`count`).
    """
    if not averaged:
        return rows.select(
            "span_id", "step", *_LABELS, *_LAYER, pl.lit(1, pl.Int64).alias("count"), "duration_ns",
            *counter_columns(rows), pl.col("launch_ns").alias("order_ns"), "start_ns",
        ).rename({"name": "kernel_name"})  # fmt: skip
    present = pl.len() / pl.col("step_count").first()
    return (
        rows.group_by("execution", maintain_order=True)
        .agg(
            *(pl.col(c).first() for c in ("span_id", *_LABELS, *_LAYER)),
            present.alias("count"),
            pl.col("duration_ns").filter("kept").mean() * present,
            *(pl.col(c).mean() * present for c in summed_columns(rows)),
            pl.col("achieved_occupancy").mean(),
            pl.col("offset_ns").min().alias("order_ns"),
            pl.col("start_ns").min(),
        )
        .sort("execution")
        .drop("execution")
        .rename({"name": "kernel_name"})
    )
