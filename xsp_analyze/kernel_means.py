"""The one frame of kernel executions that every kernel table is summed from.

Its rows have a fixed order, and tables group it eagerly with `maintain_order` (a lazy plan drops that before a sort):
the threads of a sum of Float64 would else show in its last digit, and two runs would not print the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.activities import AXES
from xsp_analyze.counters import COUNTERS
from xsp_analyze.formulas import trimmed_count
from xsp_analyze.steps import step_counts

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

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
    inside = (
        activities.join(steps.rename({"start_ns": "step_start_ns"}).drop("duration_ns"), on=["run_id", "step"])
        .join(step_counts(steps), on="run_id")
        .with_columns((pl.col("launch_ns") - pl.col("step_start_ns")).alias("offset_ns"))
        .sort("run_id", "step", "launch_ns", "start_ns", "span_id")
        .drop("step_start_ns")
    )
    return _trimmed(inside.with_columns(_execution_ids(inside)))


def _execution_ids(ordered: pl.DataFrame) -> pl.Series:
    """Numbers the executions from 0; `ordered` is in order of launch within each run and step."""
    groups = (
        ordered.with_row_index("row")
        .group_by(_SIGNATURE, maintain_order=True)
        .agg("row", "step")
        .with_row_index("signature")
        .select("signature", "row", "step")
        .explode("row", "step")
    )
    signature = groups["signature"].to_numpy().astype(np.int64)
    step, row = groups["step"].to_numpy(), groups["row"].to_numpy()
    place = _place_in_run((signature[1:] != signature[:-1]) | (step[1:] != step[:-1]), len(row))
    order = np.lexsort((place, signature))
    changed = (np.diff(signature[order]) != 0) | (np.diff(place[order]) != 0)
    number = np.empty(len(row), dtype=np.int64)
    number[row[order]] = np.concatenate(([0], np.cumsum(changed))) if len(row) else np.empty(0, dtype=np.int64)
    return pl.Series("execution", number)


def _place_in_run(changed: np.ndarray[tuple[int], np.dtype[np.bool_]], count: int) -> Ints:
    """For each row its place, from 0, in the run of equal rows it belongs to; `changed[i]`: row i + 1 starts one."""
    place = np.arange(count, dtype=np.int64)
    starts = np.where(np.concatenate(([True], changed))[:count], place, 0)
    return place - np.maximum.accumulate(starts)


def _trimmed(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds present, kept and mean_ns."""
    ranked = rows.sort("execution", "duration_ns", "step", "span_id").with_columns(
        pl.len().over("execution").cast(pl.Int64).alias("present")
    )
    execution = ranked["execution"].to_numpy()
    rank = pl.Series("rank", _place_in_run(execution[1:] != execution[:-1], ranked.height))
    dropped = trimmed_count(pl.col("present"))
    kept = (pl.col("rank") >= dropped) & (pl.col("rank") < pl.col("present") - dropped)
    weight = pl.col("present") / (pl.col("step_count") * (pl.col("present") - 2 * dropped))
    return (
        ranked.with_columns(rank)
        .with_columns(kept.alias("kept"))
        .with_columns((pl.when("kept").then(pl.col("duration_ns") * weight).otherwise(0.0)).alias("mean_ns"))
        .drop("rank")
    )


def executions(rows: pl.DataFrame, *, averaged: bool) -> pl.DataFrame:
    """One row a kernel execution: labels, layer, grid and block, `count`, `duration_ns`, counters, `order_ns`.

    Not averaged: every activity, count 1, exact ns. Averaged: `rows` come from `aligned`; duration_ns is the trimmed
    mean over the steps that hold it, times the share of steps that do (`count`).
    """
    if not averaged:
        return rows.select(
            "step", *_LABELS, *_LAYER, *AXES, pl.lit(1, pl.Int64).alias("count"), "duration_ns", *COUNTERS,
            pl.col("launch_ns").alias("order_ns"), "start_ns",
        ).rename({"name": "kernel_name"})  # fmt: skip
    present = pl.len() / pl.col("step_count").first()
    same = [c for c in (*_LABELS, *_LAYER, *AXES) if c != "step"]
    return (
        rows.group_by("execution", maintain_order=True)
        .agg(
            *(pl.col(c).first() for c in same),
            present.alias("count"),
            pl.col("duration_ns").filter("kept").mean() * present,
            *(pl.col(c).mean() * present for c in COUNTERS[:3]),
            pl.col("achieved_occupancy").mean(),
            pl.col("offset_ns").min().alias("order_ns"),
            pl.col("start_ns").min(),
        )
        .sort("execution")
        .drop("execution")
        .rename({"name": "kernel_name"})
    )
