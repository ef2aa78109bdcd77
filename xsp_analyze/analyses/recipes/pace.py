"""How regularly something comes again: each occurrence with the time since the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.recipes.common import FILE, on_source_clock, with_file
from xsp_analyze.core import Column, Role

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["pace", "pace_columns"]

_GROUP = ("run_id", "name")


def pace(view: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row an occurrence (run_id, name, start_ns, end_ns), in the order given, by name and run."""
    stamped = on_source_clock(view, rows, ("start_ns", "end_ns"))
    previous = pl.col("end_ns").shift(1, fill_value=0).over(_GROUP)
    paced = stamped.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(_GROUP).alias("iteration"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
        # The first one's is from the start of the capture, as in nsys.
        (pl.col("start_ns") - previous).alias("delta_ns"),
    )
    paced = paced.with_columns(
        pl.col("delta_ns").cum_sum().over(_GROUP).alias("delta_sum_ns"),
        pl.col("duration_ns").cum_sum().over(_GROUP).alias("duration_sum_ns"),
    )
    return with_file(view, paced).sort("name", "run_id", "iteration")


def pace_columns(what: str, *, device: bool = False) -> tuple[Column, ...]:
    """Columns for `pace`; the headings are the names of the recipe's `pace_*.parquet`."""
    where = "on the device" if device else "on the host"
    return (
        name_column("name", f"Name of the {what}.", "Name"),
        integer("run_id", "The run: the recipe's rank.", "Rank", role=Role.KEY),
        FILE,
        integer("iteration", "Index among the ranges of its name in the run, from 0.", "Iteration", role=Role.KEY),
        integer("start_ns", f"Its start {where}, on the profiler's own clock.", "start", unit="ns"),
        integer("end_ns", f"Its end {where}.", "end", unit="ns"),
        integer("duration_ns", "Its duration.", "duration", unit="ns"),
        integer(
            "delta_ns", "From the end of the one before to its start; the first: from the start of the capture.",
            "delta", unit="ns",
        ),
        integer("duration_sum_ns", "Sum of the durations so far.", "duration_accum", unit="ns"),
        integer("delta_sum_ns", "Sum of the deltas so far.", "delta_accum", unit="ns"),
    )  # fmt: skip
