"""Copies and memsets beside the calls that asked for them, as three rules of nsys look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys import sources
from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.recipes.common import on_source_clock
from xsp_analyze.core import Column, Role

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["LOCATION", "asked_for", "copy_columns", "timing"]


def asked_for(view: TraceView, work: pl.LazyFrame, calls: pl.Expr) -> pl.LazyFrame:
    """The copies or fills whose call's name is such, longest first, times as the profiler stamped them."""
    launched = sources.launches(view, work).filter(calls)
    stamped = on_source_clock(view, launched, ("start_ns",))
    nothing = pl.lit(None, dtype=pl.Int64).alias("green_context_id")
    return stamped.with_columns(nothing).sort(-pl.col("duration_ns"), "run_id", "start_ns", "span_id")


def timing(what: str) -> tuple[Column, ...]:
    """Columns for when the work ran."""
    return (
        integer("duration_ns", f"Duration of the {what} on the device.", "Duration (ns)", unit="ns"),
        integer("start_ns", "Its start, on the profiler's own clock.", "Start (ns)", role=Role.KEY, unit="ns"),
    )


LOCATION: tuple[Column, ...] = (
    Column("bytes", pl.Int64(), "Bytes copied or filled.", "byte", header="Bytes (MB)", decimals=3),
    integer("process_id", "The process.", "PID", role=Role.KEY),
    integer("device_id", "The device.", "Device ID", role=Role.KEY),
    integer("context_id", "The context.", "Context ID", role=Role.LABEL),
    integer("green_context_id", "Not in our model, so always unknown.", "Green Context ID", role=Role.LABEL),
    integer("stream_id", "The stream.", "Stream ID", role=Role.KEY),
    name_column("call_name", "The call as recorded.", "API Name", role=Role.LABEL),
)


def copy_columns() -> tuple[Column, ...]:
    """The columns of the two rules about copies."""
    return (
        *timing("copy"),
        name_column("source_kind", "Memory read from.", "Src Kind", role=Role.LABEL),
        name_column("destination_kind", "Memory written to.", "Dst Kind", role=Role.LABEL),
        *LOCATION,
    )
