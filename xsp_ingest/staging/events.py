"""Ranges of tools of which little is known: what they are by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.range_rules import NVTX, classify
from xsp_ingest.staging.raw import RAW_TABLES, frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.ingester import Options

__all__ = ["RANGE_COLUMNS", "tables_of_ranges"]


RANGE_COLUMNS: Mapping[str, pl.DataType] = {
    "name": pl.String(),
    "domain": pl.String(),  # a category or a scope
    "style": pl.String(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "process_id": pl.Int64(),
    "thread_id": pl.Int64(),
    "end_thread_id": pl.Int64(),
}


def tables_of_ranges(ranges: pl.DataFrame, options: Options) -> Mapping[str, pl.DataFrame]:
    """The staging tables of these ranges, whose columns are RANGE_COLUMNS; `row` is the position."""
    named = ranges.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed]")).alias("name"),
        pl.col("name").alias("text"),
        pl.lit(value=False).alias("numbered"),
    )
    kinds = classify(named, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    placed = named.hstack(kinds)
    tables = {
        "spans": frame_of("spans", placed),
        "ranges": frame_of("ranges", placed.with_columns(pl.col("row").alias("range_id"))),
    }
    return tables | {name: frame_of(name) for name in RAW_TABLES if name not in tables}
