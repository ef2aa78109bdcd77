"""The operators that work is counted by: their modelled work, and the device work that they launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames.activities import column_at
from xsp_analyze.frames.modelled_calls import CALL, following_shapes, modelled_calls
from xsp_analyze.frames.modelled_work import MODELLED
from xsp_analyze.frames.roles import Roles
from xsp_model import Level
from xsp_model.tree import outermost

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["operator_work"]

_HOST = ("count", "modelled_count", "modelled_flop", "modelled_bytes")


def operator_work(frames: StepFrames) -> pl.DataFrame:
    """One row an operator's name (and step, where each is answered): its calls, modelled and measured work.

    A call counts if no operator around it has a name that can be modelled; below such a one nothing else counts.
    """
    unit = _units(frames.trace)
    calls = _calls(frames.trace, unit)
    device = _device_work(frames, unit, calls)
    replayed = _replayed(frames, unit, calls)
    # What was captured in the run itself did nothing then: its replays are what ran.
    captured = pl.col("span_id").is_in(replayed["span_id"].unique().implode())
    made = Roles.of(calls, frames.of_trace.roles.kernels).filter(~captured)
    every = pl.concat([made, replayed], how="diagonal")
    host = frames.combine(_per_step(every), ["operator"], _HOST)
    return host.join(
        device, on=[*frames.by, "operator"], how="full", coalesce=True, maintain_order="left_right"
    ).with_columns(pl.col("device_sum_ns", "modelled_device_ns").fill_null(0))


def _per_step(calls: pl.DataFrame) -> pl.DataFrame:
    is_modelled = pl.col("modelled_flop").is_not_null()
    return calls.group_by("run_id", "step", "operator", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"),
        is_modelled.sum().cast(pl.Int64).alias("modelled_count"),
        known_sum(pl.col("modelled_flop")),
        known_sum(pl.col("modelled_bytes")),
    )


def _units(trace: Trace) -> Ints:
    """For each span the operator that it counts for, or -1: the outermost of a known name, else the outermost."""
    spans = trace.scan("spans").select(
        "parent_id",
        (pl.col("level") == str(Level.OPERATOR)).alias("operator"),
        pl.col("name").is_in(list(MODELLED)).alias("known"),
    ).collect()  # fmt: skip
    parents, operator = spans["parent_id"].fill_null(-1).to_numpy(), spans["operator"].to_numpy()
    modelled = outermost(parents, operator & spans["known"].to_numpy())
    return np.where(modelled >= 0, modelled, outermost(parents, operator))


def _calls(trace: Trace, unit: Ints) -> pl.DataFrame:
    """The calls that count, in order of start, with what is modelled of them."""
    counted = pl.DataFrame({"span_id": np.unique(unit[unit >= 0])}, schema={"span_id": pl.Int64})
    ids = counted["span_id"]  # which rise with the start
    spans = [column_at(trace, c, ids) for c in ("run_id", "step", "process_id", "thread_id", "name")]
    operators = trace.scan("operators").select("span_id", "input_shapes", "input_dtypes", "concrete_inputs")
    calls = (
        counted.hstack(spans)
        .lazy()
        .join(operators, on="span_id", how="left", maintain_order="left")
        .with_columns(pl.col("name").cast(pl.String), *following_shapes())
        .select("span_id", "run_id", "step", *CALL)
        .collect()
    )
    works = modelled_calls(calls.select(CALL).unique(maintain_order=True))
    return calls.join(works, on=CALL, how="left", nulls_equal=True, maintain_order="left").select(
        "span_id",
        "run_id",
        "step",
        pl.col("name").alias("operator"),
        pl.col("flop").alias("modelled_flop"),
        (pl.col("input_bytes") + pl.col("output_bytes")).alias("modelled_bytes"),  # null where one is not known
    )


def _replayed(frames: StepFrames, unit: Ints, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls whose work graphs replayed: one each replay, of the run and step of the replay."""
    work = frames.of_trace.all_activities
    replayed = work.filter(pl.col("origin_id") != pl.col("span_id")).select("run_id", "step", "parent_id", "origin_id")
    operator = pl.Series("span_id", unit[replayed["origin_id"].to_numpy()], dtype=pl.Int64)
    once = replayed.drop("origin_id").with_columns(operator).unique(maintain_order=True)
    return once.join(calls.drop("run_id", "step"), on="span_id", how="inner", maintain_order="left")


def _device_work(frames: StepFrames, unit: Ints, calls: pl.DataFrame) -> pl.DataFrame:
    """One row a name of operators that launched device work, by themselves or by others: time and counters."""
    work = frames.work
    operators = calls.select(pl.col("span_id").alias("operator_id"), "operator", "modelled_flop")
    moved = (pl.col("dram_read_bytes") + pl.col("dram_write_bytes")) * pl.col("work_count")
    return (
        work.with_columns(pl.Series("operator_id", unit[work["origin_id"].to_numpy()]))
        .join(operators, on="operator_id", how="inner", maintain_order="left")
        .group_by(*frames.by, "operator", maintain_order=True)
        .agg(
            pl.col("work_ns").sort().sum().alias("device_sum_ns"),  # sorted, else threads show in the last digit
            pl.col("work_ns").filter(pl.col("modelled_flop").is_not_null()).sort().sum().alias("modelled_device_ns"),
            known_sum(pl.col("flop_count") * pl.col("work_count")).alias("measured_flop"),
            known_sum(moved).alias("dram_bytes"),
        )
    )
