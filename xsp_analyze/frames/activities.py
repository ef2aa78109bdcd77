"""Device activities in one frame, each with its launch, its layer and its launch configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.attributions import origins
from xsp_analyze.frames.counters import attach_counters
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_model import Level
from xsp_model.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = [
    "AXES",
    "WORK_COLUMNS",
    "column_at",
    "device_activities",
    "device_work",
    "every_span",
    "shapes_at",
    "shapes_of",
    "with_shapes",
]

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

WORK_COLUMNS = ("span_id", "run_id", "process_id", "device_id", "step", "kind", "name", "attribution", "duration_ns")
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

    `origin_id` is the span above which its operator stands: its own, or where its graph's node was captured.
    `call_start_ns`, `call_end_ns` and `call_thread_id` are of the runtime call that launched it, null where none is
    known; `launch_ns` is
    that start, or else its own; `layer_index`, `layer_name` and `layer_type` are those of the layer it is attributed
    to, else null; then counters.
    """
    activities = (
        trace.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select(_SPAN_COLUMNS)
        .with_columns(pl.col("duration_ns").fill_null(0))
        .collect()
    )
    called = _with_calls(trace, activities).with_columns(pl.coalesce("call_start_ns", "start_ns").alias("launch_ns"))
    called = called.with_columns(pl.Series("origin_id", origins(trace, activities["span_id"])))
    layers = trace.scan("layers").select("span_id", "layer_index", "layer_name", "layer_type").collect()
    return attach_counters(trace, called.hstack(_matching(layers, called["layer_id"])))


def _with_calls(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    parents = activities["parent_id"]
    names = ("start_ns", "duration_ns", "level", "thread_id")
    start, duration, level, thread = (column_at(trace, name, parents) for name in names)
    is_call = level == str(Level.RUNTIME)  # else the parent is what issued the work, not its launch
    return activities.hstack(
        pl.select(
            pl.when(is_call).then(start).alias("call_start_ns"),
            pl.when(is_call).then(start + duration).alias("call_end_ns"),
            pl.when(is_call).then(thread).alias("call_thread_id"),
        )
    )


def column_at(trace: Trace, name: str, spans: pl.Series) -> pl.Series:
    """A column of the spans of these ids, null for null; only that column of them is ever held."""
    return trace.scan("spans").select(name).collect().to_series().gather(spans)


def every_span(trace: Trace, *columns: str | pl.Expr) -> pl.DataFrame:
    """Columns of all spans of all runs, a row a span id: to walk from span to span, and for no sum."""
    return trace.scan("spans").select(columns).collect()


def _matching(table: pl.DataFrame, spans: pl.Series) -> pl.DataFrame:
    """The table's row (but its span_id) for each of the spans, nulls where there is none."""
    at = lookup(table["span_id"].to_numpy(), spans.fill_null(-1).to_numpy())
    rows = nullable_index(at)
    return pl.DataFrame([column.gather(rows) for column in table.drop("span_id")])


def with_shapes(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with the columns of AXES: grid and block, null for what is no kernel."""
    kernels = trace.scan("kernels").select("span_id", *AXES).collect()
    return activities.hstack(_matching(kernels, activities["span_id"]))


def shapes_of(trace: Trace, activities: pl.DataFrame) -> pl.Series:
    """A number for each activity, the same exactly for those of one grid and block; null for what is no kernel."""
    return _shapes(trace, activities)[0]


def shapes_at(trace: Trace, activities: pl.DataFrame) -> list[pl.Series]:
    """The columns `grid` and `block` of the activities: sizes along x, y and z, null where one of them is unknown."""
    number, distinct = _shapes(trace, activities)
    triples = distinct.select(
        pl.when(pl.all_horizontal(pl.col(axes).is_not_null())).then(pl.concat_list(axes)).alias(what)
        for what, axes in (("grid", AXES[:3]), ("block", AXES[3:]))
    )
    return [column.gather(number) for column in triples]


def _shapes(trace: Trace, activities: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """The activities' shapes as numbers, and the columns of AXES of each number: millions of kernels have a few."""
    kernels = trace.scan("kernels").select("span_id", *AXES).collect()
    number, first = numbers_by_appearance(*group_ids(kernels.select(AXES)))
    of_kernels = kernels.select("span_id", pl.Series("shape", number))
    return _matching(of_kernels, activities["span_id"])["shape"], kernels.select(AXES)[first]
