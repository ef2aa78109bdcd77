"""Device time of a capture by kernel, by class of kernels and by operator, and by all three at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.compare.levels import UNKNOWN_TYPE, combined, measured, operator_calls
from xsp_analyze.frames.kernel_means import chosen_activities, kernel_executions, step_work
from xsp_analyze.merge.kernel_names import normalised
from xsp_model import Attribution

if TYPE_CHECKING:
    from xsp_analyze.compare.levels import Measured
    from xsp_analyze.trace.step_view import StepView

__all__ = ["GRAPH_REPLAY", "KERNEL", "NO_LAYER", "NO_OPERATOR", "cells", "kernel_classes", "kernels", "operators"]

GRAPH_REPLAY = "graph replay"
"""Stands for the operator of what a CUDA graph replays: who launches the graph did not choose its kernels."""

NO_OPERATOR = "outside of operators"
NO_LAYER = "outside of layers"

KERNEL = "kernel "
"""How keys of `kernels` begin, other than those of copies and memsets."""


def kernels(frames: StepView) -> Measured:
    """One row a kernel's name (in one spelling) and kind: device time as A10 has it."""
    rows = frames.once(kernel_executions).with_columns(_keys(frames.once(kernel_executions)))
    sums = rows.group_by("key", maintain_order=True).agg(
        pl.col("kernel_name").first().cast(pl.String).alias("name"),
        pl.col("kind").first().cast(pl.String),
        pl.col("count").sum(),
        pl.col("duration_ns").sum(),
    )
    work = frames.once(chosen_activities).rename({"name": "kernel_name"})
    per_step = work.with_columns(_keys(work)).select("run_id", "step", "key", pl.col("duration_ns").alias("ns"))
    return measured(frames, sums.select("key", "name", "kind"), sums["duration_ns"], sums["count"], per_step,
                     frames.of_trace.kernel_runs)  # fmt: skip


def kernel_classes(frames: StepView) -> Measured:
    """One row a class of kernels: device time."""
    work = frames.once(_labelled)
    return combined(frames, _timed(work, "kernel_class"))


def operators(frames: StepView) -> Measured:
    """One row an operator's name: device time that it launched itself, and one for what graphs replay."""
    work = frames.once(_labelled)
    return combined(frames, _timed(work.filter(pl.col("operator") != NO_OPERATOR), "operator"))


def cells(frames: StepView) -> pl.DataFrame:
    """Time and count in a mean step: layer_type, operator, kernel_class, kernel (a key of `kernels`), ns, count."""
    work = frames.once(_labelled)
    return work.group_by("layer_type", "operator", "kernel_class", "kernel", maintain_order=True).agg(
        pl.col("work_ns").cast(pl.Float64).sum().alias("ns"), pl.col("work_count").cast(pl.Float64).sum().alias("count")
    )


def _timed(work: pl.DataFrame, key: str) -> pl.DataFrame:
    return work.select("run_id", "step", pl.col(key).alias("key"), pl.col("duration_ns").alias("ns"))


def _labelled(frames: StepView) -> pl.DataFrame:
    """The activities of the steps with what each is called at every level."""
    work = frames.once(step_work)
    launchers = operator_calls(frames).select("span_id", "operator")
    named = work.select("span_id").join(launchers, on="span_id", how="left", maintain_order="left")["operator"]
    replayed = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    operator = pl.when(replayed).then(pl.lit(GRAPH_REPLAY)).otherwise(named.fill_null(NO_OPERATOR)).alias("operator")
    kernel = _keys(work.rename({"name": "kernel_name"})).alias("kernel")
    columns = ("run_id", "step", "duration_ns", "work_ns", "work_count")
    return work.select(
        *columns, _layer_type(replayed).alias("layer_type"), operator, pl.col("kernel_class").cast(pl.String), kernel
    )


def _layer_type(replayed: pl.Expr) -> pl.Expr:
    of_layer = pl.col("attribution").cast(pl.String) == str(Attribution.LAYER)
    kind = pl.col("layer_type").cast(pl.String).fill_null(UNKNOWN_TYPE)
    return pl.when(of_layer).then(kind).when(replayed).then(pl.lit(GRAPH_REPLAY)).otherwise(pl.lit(NO_LAYER))


def _keys(rows: pl.DataFrame) -> pl.Series:
    """One spelling a kernel, with its kind: a copy of a name is no kernel of that name."""
    distinct = rows.select(pl.col("kernel_name", "kind").cast(pl.String)).unique(maintain_order=True)
    keys = [f"{kind} {normalised(name)}" for name, kind in distinct.iter_rows()]
    named = distinct.with_columns(pl.Series("key", keys, dtype=pl.String))
    both = rows.select(pl.col("kernel_name", "kind").cast(pl.String))
    return both.join(named, on=["kernel_name", "kind"], how="left", maintain_order="left")["key"]
