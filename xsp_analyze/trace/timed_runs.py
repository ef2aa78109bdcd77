"""The runs of which times tell: all but those that hold how graphs were captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model import GRAPH_CAPTURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = ["capture_runs", "timed_runs", "without_captures"]


def capture_runs(trace: Trace) -> Sequence[int]:
    """The runs in which graphs were captured: what work of them belongs to is known, and nothing was timed."""
    captured = (pl.col("role") == GRAPH_CAPTURE).fill_null(value=False)
    return trace.frame("runs").filter(captured)["run_id"].to_list()


def timed_runs(trace: Trace) -> pl.DataFrame:
    """The rows of `runs` without them."""
    runs = trace.frame("runs")
    return runs.filter(~pl.col("run_id").is_in(list(capture_runs(trace))))


def without_captures(trace: Trace, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows with a `run_id`, without those of captures."""
    captures = capture_runs(trace)
    return rows.filter(~pl.col("run_id").is_in(list(captures))) if captures else rows
