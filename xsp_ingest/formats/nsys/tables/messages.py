"""Calls of MPI (point to point, collectives, waits and the rest) and of UCX below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows, rows_with_start
from xsp_ingest.staging.raw import frame_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["messages", "own_rank"]

TABLES = (
    "MPI_P2P_EVENTS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
    "UCP_SUBMIT_EVENTS",
    "UCP_PROGRESS_EVENTS",
    "UCP_EVENTS",
)
"""The last three: UCX's transfers as they are submitted, their progress, and its other calls."""
_COLUMNS = ("start", "end", "globalTid", "textId")
_COLLECTIVES = "MPI_COLLECTIVES_EVENTS"
_DETAILS = ("size", "recvSize", "tag", "remoteRank", "rootRank")


def messages(export: Tables) -> Iterator[ExportRows]:
    """One part for each table of these calls: calls at the level of libraries, as a send is a library's doing."""
    for table in TABLES:
        rows = export.integers(table, (*_COLUMNS, *_DETAILS))
        findings = host_findings(rows, table)
        rows = rows_with_start(rows).drop("rowid")
        spans = rows.with_row_index("row").select(
            pl.col("row").cast(pl.Int64),
            pl.lit(str(Level.LIBRARY)).alias("level"),
            pl.lit(str(Kind.CALL)).alias("kind"),
            export.strings.of(rows["textId"]).fill_null(f"[unnamed {table[:3]} call]").alias("name"),
            pl.col("start").alias("start_ns"),
            closed_duration(),
            process_of(pl.col("globalTid")).alias("process_id"),
            thread_of(pl.col("globalTid")).alias("thread_id"),
        )
        yield ExportRows({"spans": spans, "messages": _details(export, rows, table)}, findings)


def _details(export: Tables, rows: pl.DataFrame, table: str) -> pl.DataFrame:
    """What MPI's calls say of their message; of UCX's nothing is read."""
    if not table.startswith("MPI_") or rows.is_empty():
        return frame_of("messages")
    ranks = export.integers("MPI_RANKS", ("globalTid", "rank")).unique("globalTid", keep="first", maintain_order=True)
    together = table == _COLLECTIVES
    sizes = {"sent_bytes": "size", "received_bytes": "recvSize"} if together else {"bytes": "size"}
    named = rows.with_row_index("row").join(ranks.drop("rowid"), on="globalTid", how="left", maintain_order="left")
    return frame_of(
        "messages",
        named.select(
            "row",
            "rank",
            "tag",
            pl.col("remoteRank").alias("peer_rank"),
            pl.col("rootRank").alias("root_rank"),
            *(pl.col(theirs).alias(ours) for ours, theirs in sizes.items()),
        ),
    )


def own_rank(export: Tables) -> int | None:
    """The MPI rank of the report's only process that has one; null where none or several have."""
    ranks = export.integers("MPI_RANKS", ("rank",))["rank"].drop_nulls().unique()
    return int(ranks[0]) if len(ranks) == 1 else None
