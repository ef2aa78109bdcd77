"""The summary by name that `nsys stats` prints of calls of one library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import summary
from xsp_analyze.frames.host_ranges import library_spans

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["library_sum"]


def library_sum(view: TraceView, whose: str) -> pl.LazyFrame:
    """One row a name, without the language that `library_spans` tells it by; most total time first, then by name."""
    name = pl.col("name").cast(pl.String).str.strip_prefix(f"{whose}:")
    rows = summary(library_spans(view, whose).select(name, "duration_ns"), ["name"])
    return rows.sort(-pl.col("total_ns"), maintain_order=True)
