"""Calls of MPI: point to point, collectives, waits and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.rows import Part
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["messages", "own_rank"]

TABLES = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
_COLUMNS = ("start", "end", "globalTid", "textId")


def messages(export: Tables) -> Iterator[Part]:
    """One part for each table of MPI calls: calls at the level of libraries, as a send is a library's doing."""
    for table in TABLES:
        rows = export.integers(table, _COLUMNS)
        findings = host_findings(rows, table)
        rows = rows.filter(pl.col("start").is_not_null())
        spans = rows.with_row_index("row").select(
            pl.col("row").cast(pl.Int64),
            pl.lit(str(Level.LIBRARY)).alias("level"),
            pl.lit(str(Kind.CALL)).alias("kind"),
            export.strings.of(rows["textId"]).fill_null("[unnamed MPI call]").alias("name"),
            pl.col("start").alias("start_ns"),
            closed_duration(),
            process_of(pl.col("globalTid")).alias("process_id"),
            thread_of(pl.col("globalTid")).alias("thread_id"),
        )
        yield Part({"spans": spans}, findings)


def own_rank(export: Tables) -> int | None:
    """The MPI rank of the report's only process that has one; null where none or several have."""
    ranks = export.integers("MPI_RANKS", ("rank",))["rank"].drop_nulls().unique()
    return int(ranks[0]) if len(ranks) == 1 else None
