"""Rows of the staging tables: start and duration of records, and what is odd about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.range_rules import NVTX, classify
from xsp_ingest.staging.raw import RAW_TABLES, frame_of
from xsp_model import Finding, LedgerKind
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.ingester import Options

__all__ = ["MAX_DURATION_NS", "RANGE_COLUMNS", "Rows", "beside", "tables_of_ranges", "with_times"]

MAX_DURATION_NS = 24 * 3600 * 10**9
"""A day: no capture is longer, nor anything in one."""


def with_times(
    rows: pl.DataFrame, what: str, *, device: bool, zeros_unknown: bool = False
) -> tuple[pl.DataFrame, list[Finding]]:
    """The rows that have a `start`, with `start_ns` and `duration_ns`, and findings on the times of the others.

    `zeros_unknown`: the tool writes 0 for start and end where it could not take them, as CUPTI does. An end before the
    start, or over a day behind it, gives 0 for device work, whose duration must be known, and unknown for the host's.
    """
    start, end = (_plausible(name) for name in ("start", "end"))
    rows = rows.with_columns(start.alias("start"), end.alias("end"))
    zeros = (pl.col("start") == 0) & (pl.col("end").fill_null(0) == 0) & pl.lit(zeros_unknown)
    unknown = pl.col("start").is_null() | zeros
    missing = rows.select(unknown.sum()).item()
    rows = rows.filter(~unknown)
    backwards = rows.filter(pl.col("end") < pl.col("start")).height
    endless = rows["end"].null_count()
    elapsed = pl.col("end") - pl.col("start")
    absurd = rows.filter(elapsed > MAX_DURATION_NS).height
    length = pl.when(elapsed.is_between(0, MAX_DURATION_NS)).then(elapsed)
    findings = [
        Finding(LedgerKind.MISSING_TIME, f"{what} without a start; left out", missing),
        Finding(
            LedgerKind.NEGATIVE_DURATION, f"{what} that end before they start; kept, their duration not used", backwards
        ),
        Finding(LedgerKind.ABSURD_DURATION, f"{what} longer than a day; kept, their duration not used", absurd),
        Finding(LedgerKind.MISSING_END, f"{what} without an end; kept, their duration not known", endless),
    ]
    duration = length.fill_null(0) if device else length
    return rows.with_columns(pl.col("start").alias("start_ns"), duration.alias("duration_ns")), findings


def _plausible(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_between(-LATEST_NS, LATEST_NS)).then(pl.col(name))


# Keeps spans of no length beside those that start with them, where a profiler's clock is coarse.


def beside(spans: pl.DataFrame, levels: tuple[str, ...]) -> pl.DataFrame:
    """The spans of these levels that last 0 ns and start with another one of theirs, without their thread.

    On its thread such a span would be taken for a child of the other, as linking sees no more than times; without one
    it goes under the step it ran in.
    """
    level = pl.col("level").cast(pl.String)
    together = pl.len().over("process_id", "thread_id", "start_ns", level) > 1
    lost = level.is_in(levels) & (pl.col("duration_ns") == 0) & together
    return spans.with_columns(pl.when(~lost).then(pl.col("thread_id")).alias("thread_id"))


# Collects rows of the staging tables one at a time.


class Rows:
    """Rows by table; columns not given are null."""

    def __init__(self) -> None:
        self._columns: dict[str, dict[str, list[object]]] = {
            name: {column: [] for column in columns} for name, columns in RAW_TABLES.items()
        }

    def add(self, table: str, **row: object) -> None:
        """Adds a row."""
        columns = self._columns[table]
        for column, values in columns.items():
            values.append(row.pop(column, None))
        if row:
            message = f"table {table} has no column {', '.join(sorted(row))}"
            raise ValueError(message)

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """Every staging table."""
        return {
            name: frame_of(name, pl.DataFrame(columns, schema=dict(RAW_TABLES[name])))
            for name, columns in self._columns.items()
        }


# Ranges of tools of which little is known: what they are by their names.

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
