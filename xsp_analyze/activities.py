"""Device activities in one frame, each with its launch, its layer and its launch configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.counters import attach_counters
from xsp_model import Level

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["AXES", "WORK_COLUMNS", "device_activities", "device_work", "with_shapes"]

AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
"""The columns that hold a kernel's grid and block."""

_SPAN_COLUMNS = (
    "span_id",
    "parent_id",
    "run_id",
    "process_id",
    "device_id",
    "stream_id",
    "kind",
    "name",
    "start_ns",
    "duration_ns",
    "step",
    "phase",
    "layer_id",
    "attribution",
)

WORK_COLUMNS = ("span_id", "run_id", "process_id", "step", "kind", "name", "duration_ns")
"""What `device_work` has of each device activity."""


def device_work(trace: Trace) -> pl.DataFrame:
    """One row a device activity in order of start, in WORK_COLUMNS; a duration that is unknown counts as 0."""
    return (
        trace.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select(WORK_COLUMNS)
        .with_columns(pl.col("duration_ns").fill_null(0))
        .collect()
    )


def device_activities(trace: Trace) -> pl.DataFrame:
    """One row a device activity in order of start: the span's columns (ns), with what analyses ask about it.

    `call_start_ns` and `call_end_ns` are of the runtime call that launched it, null where none is known; `launch_ns` is
    that start, or else its own; `layer_index`, `layer_name` and `layer_type` are those of the layer it is attributed
    to, else null; then counters.
    """
    found = (
        trace.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select(_SPAN_COLUMNS)
        .with_columns(pl.col("duration_ns").fill_null(0))
        .collect()
    )
    layers = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), "layer_index", "layer_name", "layer_type")
    joined = (
        _with_calls(trace, found)
        .lazy()
        .with_columns(pl.coalesce("call_start_ns", "start_ns").alias("launch_ns"))
        .join(layers, on="layer_id", how="left", maintain_order="left")
        .collect()
    )
    return attach_counters(trace, joined)


def _with_calls(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    is_call = pl.col("level") == str(Level.RUNTIME)  # else the parent is what issued the work, not its launch
    end = pl.col("start_ns") + pl.col("duration_ns")
    calls = trace.scan("spans").select(
        pl.when(is_call).then("start_ns").alias("call_start_ns"), pl.when(is_call).then(end).alias("call_end_ns")
    )
    parents = activities["parent_id"]
    return activities.hstack([column.gather(parents) for column in calls.collect()])


def with_shapes(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with the columns of AXES: grid and block, null for what is no kernel."""
    kernels = trace.scan("kernels").select("span_id", *AXES).collect()
    return activities.join(kernels, on="span_id", how="left", maintain_order="left")
