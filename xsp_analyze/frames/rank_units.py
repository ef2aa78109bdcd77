"""What the ranks of a trace are: runs side by side, or the devices of a run that speak to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["has_ranks", "rank_units"]

_UNIT = ("run_id", "process_id", "device_id")


def rank_units(frames: TraceView) -> pl.DataFrame:
    """One row a rank, in order: run_id, process_id, device_id, rank.

    Of a run those devices that communicate, else all that worked; a run without device work is one of null device.
    `rank` is what the run says, or where one run has several, the device; where neither tells ranks apart they are
    numbered in order.
    """
    work = frames.all_activities
    talks = (IS_COMMUNICATION & (pl.col("kind") == str(Kind.KERNEL))).any()
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
