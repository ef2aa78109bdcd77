"""B09: memory in use over time: its peak, when that was, and in which layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.frames.layers.layer_time import every_layer_call
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["memory"]

_SERIES = ("run_id", "device_id", "counter")
_CALL = ("layer_index", "layer_name", "layer_type", "step")


def _bytes(name: str, doc: str) -> Column:
    return Column(name, pl.Float64(), doc, "byte")


@analysis(
    "B09",
    "memory",
    needs=("counters",),
    read=(
        "The peak decides whether a batch fits; allocated far below reserved is memory that the "
        "framework's allocator holds and nobody uses."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("counter", pl.String(), "What was counted: allocated, reserved, or a category of use.", role=Role.KEY),
        Column("sample_count", pl.Int64(), "Times at which it is known."),
        _bytes("first_bytes", "At the first of these."),
        _bytes("mean_bytes", "Mean over time: each value holds until the next one is known."),
        _bytes("last_bytes", "At the last."),
        _bytes("peak_bytes", "The most."),
        Column("peak_time_ns", pl.Int64(), "When it first was that much, from the start of the trace.", "ns"),
        Column("peak_step", pl.Int64(), "Step of the layer call below.", role=Role.LABEL),
        Column(
            "peak_layer_index", pl.Int64(), "The layer whose call ran on the host then; null: none.", role=Role.LABEL
        ),
        Column("peak_layer_name", pl.String(), "Its name.", role=Role.LABEL),
        Column("peak_layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
    ),
    figure=FigureSpec("bars", x="counter", y=("peak_bytes",), title="Most memory in use"),
    by_step=False,
)
def memory(frames: StepView) -> pl.LazyFrame:
    """One row a run, device and counter of bytes, in this order; over the whole trace, whatever the steps."""
    samples = (
        frames.of_trace.own_runs.scan("counters")
        .filter(pl.col("unit") == "byte")
        .with_columns(pl.col("counter").cast(pl.String))
        .sort(TABLES["counters"].order, nulls_last=True)
        .collect()
    )
    held = pl.col("time_ns").shift(-1) - pl.col("time_ns")
    peak = pl.col("value").arg_max()
    series = samples.group_by(_SERIES, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("sample_count"),
        pl.col("value").first().alias("first_bytes"),
        pl.when(held.sum() > 0).then((pl.col("value") * held).sum() / held.sum()).alias("mean_bytes"),
        pl.col("value").last().alias("last_bytes"),
        pl.col("value").max().alias("peak_bytes"),
        pl.col("time_ns").get(peak).alias("peak_time_ns"),
    )
    return series.hstack(_running_at(frames, series)).lazy()


def _running_at(frames: StepView, series: pl.DataFrame) -> pl.DataFrame:
    """For each row the layer call that had begun last, of those that ran on the host at its peak."""
    calls = frames.of_trace.once(every_layer_call)
    running = []
    for run, time in series.select("run_id", "peak_time_ns").iter_rows():
        inside = calls.filter(pl.col("run_id") == run, pl.col("start_ns") <= time, pl.col("end_ns") > time)
        last = inside.sort("start_ns", "span_id").tail(1).select(_CALL).rows()
        running.append(last[0] if last else (None,) * len(_CALL))
    kinds = {"layer_index": pl.Int64, "layer_name": pl.String, "layer_type": pl.String, "step": pl.Int64}
    return pl.DataFrame(running, schema=kinds, orient="row").select(pl.all().name.prefix("peak_"))
