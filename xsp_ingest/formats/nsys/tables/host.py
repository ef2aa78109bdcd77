"""What the host did: calls into CUDA and its libraries, waits, and the capture of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows, label, rows_with_start
from xsp_ingest.staging.cuda_enums import SYNC_KINDS
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["closed_duration", "host_calls", "host_findings"]

_CALLS = ("start", "end", "globalTid", "nameId", "correlationId")
_LIBRARIES = ("CUDNN_EVENTS", "CUBLAS_EVENTS")
_WAITS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "syncType")
_NO_STREAM = 0xFFFFFFFF  # a wait for the whole context
_NODES = ("start", "globalTid", "graphNodeId", "originalGraphNodeId")
_NODE_TABLES = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")


def host_calls(database: Tables) -> Iterator[ExportRows]:
    """One part for each table of the host's doings that the file has."""
    yield _calls(database, "CUPTI_ACTIVITY_KIND_RUNTIME", Level.RUNTIME)
    for table in _LIBRARIES:
        yield _calls(database, table, Level.LIBRARY)
    yield _waits(database)
    yield _graph_nodes(database)


def closed_duration(start: str = "start", end: str = "end") -> pl.Expr:
    """`end - start` as duration_ns; null where there is no end, or one before the start."""
    return pl.when(pl.col(end) >= pl.col(start)).then(pl.col(end) - pl.col(start)).alias("duration_ns")


def host_findings(rows: pl.DataFrame, table: str) -> tuple[Finding, ...]:
    """What is odd about the times of a host table: ends before starts, and rows without a start (left out)."""
    findings = (
        Finding(
            LedgerKind.NEGATIVE_DURATION,
            f"Rows of {table} that end before they start; kept, their duration unknown",
            int((rows["end"] < rows["start"]).sum()),
        ),
        Finding(LedgerKind.MISSING_TIME, f"Rows of {table} without a start, left out", rows["start"].null_count()),
    )
    return tuple(f for f in findings if f.count)


def _calls(database: Tables, table: str, level: Level) -> ExportRows:
    rows = database.integers(table, _CALLS)
    findings = host_findings(rows, table)
    rows = _number_rows(rows)
    spans = rows.select(
        "row",
        pl.lit(str(level)).alias("level"),
        pl.lit(str(Kind.CALL)).alias("kind"),
        # As recorded, version suffix included: nsys tells calls apart by it.
        database.strings.of(rows["nameId"]).fill_null("[unnamed call]").alias("name"),
        pl.col("start").alias("start_ns"),
        closed_duration(),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
        pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
    )
    return ExportRows({"spans": spans}, findings)


def _number_rows(rows: pl.DataFrame) -> pl.DataFrame:
    return rows_with_start(rows).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))


def _waits(database: Tables) -> ExportRows:
    rows = database.integers("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _WAITS)
    findings = host_findings(rows, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    spans = _number_rows(rows).select(
        "row",
        pl.lit(str(Level.RUNTIME)).alias("level"),
        pl.lit(str(Kind.SYNC)).alias("kind"),
        label(pl.col("syncType"), SYNC_KINDS).fill_null("Unknown sync").alias("name"),
        pl.col("start").alias("start_ns"),
        closed_duration(),
        process_of(pl.col("globalPid")).alias("process_id"),
        pl.col("deviceId").alias("device_id"),
        pl.col("contextId").alias("context_id"),
        pl.when(pl.col("streamId") != _NO_STREAM).then(pl.col("streamId")).alias("stream_id"),
        # That of the call that waited; launches are looked for among calls only, so it cannot be taken for one.
        pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id"),
    )
    return ExportRows({"spans": spans}, findings)


def _graph_nodes(database: Tables) -> ExportRows:
    """Where graph nodes were made; nsys 2022 and 2023 give the table of nodes the name of that of graphs."""
    for table in _NODE_TABLES:
        if "graphNodeId" in database.columns(table):
            rows = database.integers(table, _NODES)
            nodes = rows.select(
                process_of(pl.col("globalTid")).alias("process_id"),
                thread_of(pl.col("globalTid")).alias("thread_id"),
                pl.col("start").alias("start_ns"),
                pl.col("graphNodeId").alias("graph_node_id"),
                pl.when(pl.col("originalGraphNodeId") != 0)
                .then(pl.col("originalGraphNodeId"))
                .alias("original_graph_node_id"),
            )
            usable = nodes.drop_nulls(["start_ns", "graph_node_id"])
            lost = Finding(
                LedgerKind.GRAPH_NODE_UNPLACED, f"Rows of {table} without time or node", nodes.height - usable.height
            )
            return ExportRows({"graph_nodes": usable}, (lost,) if lost.count else ())
    return ExportRows({})
