"""B32: memory in use over time, by what it is used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.frames.memory import KIND_COLUMNS, SERIES, memory_at, memory_curve

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["memory_over_time"]

_MAX_MOMENTS = 1000

_DOCS = {
    "before_bytes": "In use when the recording began, and of no known block since.",
    "unknown_bytes": "In use for what cannot be told.",
    "other_bytes": "Outside of the model's own work, as input being loaded.",
}


def _bytes(name: str, doc: str) -> Column:
    return Column(name, pl.Int64(), doc, "byte")


@analysis(
    "B32",
    "memory over time",
    needs=("allocations",),
    read=(
        "The shape tells what the peak is made of: a triangle over forward and backward is activations, a floor that "
        "stays is weights and optimizer state; a curve whose steps rise from one to the next is a leak."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("moment", pl.Int64(), "Number of the moment, from 0.", role=Role.KEY),
        Column("time_ns", pl.Int64(), "When, from the start of the trace.", "ns"),
        _bytes("allocated_bytes", "In use then."),
        _bytes("reserved_bytes", "Held by the framework's allocator then, in use or not."),
        *(_bytes(name, _DOCS.get(name, f"Of it {kind}.")) for kind, name in KIND_COLUMNS.items()),
        Column(
            "basis",
            pl.String(),
            "`recorded`: the source counts what is in use; `summed`: from what was given out and taken back alone.",
            role=Role.LABEL,
        ),
    ),
    figure=FigureSpec("scatter", x="time_ns", y=("allocated_bytes",), title="Memory in use over time"),
    by_step=False,
)
def memory_over_time(frames: StepView) -> pl.LazyFrame:
    """One row a moment of a run and device at which what is in use changed, in this order; over the whole trace.

    Of more than a thousand, the moments of equal stretches of time at which most was in use, so the peak is in.
    """
    moments = _moments(frames.of_trace.once(memory_curve))
    numbered = memory_at(frames.of_trace, moments).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(SERIES, order_by="sequence").alias("moment")
    )
    return numbered.drop("sequence", "rest").sort(*SERIES, "moment", nulls_last=True).lazy()


def _moments(curve: pl.DataFrame) -> pl.DataFrame:
    begin, end = pl.col("time_ns").min().over(SERIES), pl.col("time_ns").max().over(SERIES)
    count = pl.len().over(SERIES)
    stretch = ((pl.col("time_ns") - begin) * (_MAX_MOMENTS - 1)) // pl.max_horizontal(end - begin, 1)
    cut = curve.with_columns(pl.when(count > _MAX_MOMENTS).then(stretch).otherwise("sequence").alias("stretch"))
    peak = pl.col("allocated_bytes").arg_max()
    kept = cut.sort("sequence").group_by(*SERIES, "stretch", maintain_order=True)
    return kept.agg(pl.exclude("stretch", *SERIES).get(peak)).drop("stretch")
