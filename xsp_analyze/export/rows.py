"""Spans with their details a bounded number at a time, as Python rows for writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_model import Trace

__all__ = ["DETAILS", "Row", "frames", "rows", "text"]

Row = dict[str, Any]

DETAILS: Sequence[str] = ("layers", "operators", "ranges", "kernels", "copies")
"""Tables with at most one row a span; their columns have names of their own."""


def text(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with words as text."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def rows(trace: Trace, *conditions: pl.Expr, run_id: int | None = None, **more: pl.DataFrame) -> Iterator[Row]:
    """Every span in order with the columns of its details and `in_TABLE` for each table that has a row for it.

    `more` are frames keyed by a unique `span_id`, whose columns are added; `conditions` are of columns of `spans`. At
    most 50,000 rows are held at a time.
    """
    for frame in frames(trace, *conditions, run_id=run_id, **more):
        yield from frame.iter_rows(named=True)


def frames(
    trace: Trace, *conditions: pl.Expr, run_id: int | None = None, **more: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """As `rows`, in frames."""
    tables: Mapping[str, pl.LazyFrame] = {name: trace.scan(name) for name in DETAILS} | {
        name: frame.lazy() for name, frame in more.items()
    }
    of_run = pl.lit(value=True) if run_id is None else pl.col("run_id") == run_id
    at_once = limits().exported_piece_spans
    for first in range(0, trace.row_count, at_once):
        inside = pl.col("span_id").is_between(first, first + at_once - 1)
        spans = trace.scan("spans").filter(inside, of_run, *conditions)
        for name, table in tables.items():
            there = table.filter(inside).with_columns(pl.lit(value=True).alias(f"in_{name}"))
            spans = spans.join(there, on="span_id", how="left", maintain_order="left")
        yield text(spans).collect()
