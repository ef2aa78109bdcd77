"""What the host did: calls into CUDA, its libraries, MPI and the system, waits, directives, the capture of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import Among
from xsp_ingest.formats.nsys.tables.interface import ExportRows, label, process_of, rows_with_start, thread_of
from xsp_ingest.staging.cuda_names import SYNC_KINDS
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options

__all__ = [
    "MESSAGES",
    "OS_RUNTIME",
    "closed_duration",
    "directive_tables",
    "directives",
    "host_calls",
    "host_findings",
    "messages",
    "mpi_ranks",
    "os_runtime",
    "reads_os_runtime",
]

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
    rows = rows_with_start(rows)
    # Names as recorded, version suffix included: nsys tells calls apart by it.
    names = database.strings.of(rows["nameId"]).fill_null("[unnamed call]")
    correlation = pl.when(pl.col("correlationId") != 0).then(pl.col("correlationId")).alias("correlation_id")
    return ExportRows({"spans": _call_spans(rows, level, names, correlation)}, findings)


def _call_spans(rows: pl.DataFrame, level: Level, names: pl.Series, *further: pl.Expr) -> pl.DataFrame:
    """Calls at the level, of rows that all have a start."""
    return _number_rows(rows).select(
        "row",
        pl.lit(str(level)).alias("level"),
        pl.lit(str(Kind.CALL)).alias("kind"),
        names.alias("name"),
        pl.col("start").alias("start_ns"),
        closed_duration(),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
        *further,
    )


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


# Calls of MPI (point to point, collectives, waits and the rest) and of UCX below it.

MESSAGES = (
    "MPI_P2P_EVENTS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
    "UCP_SUBMIT_EVENTS",
    "UCP_PROGRESS_EVENTS",
    "UCP_EVENTS",
)
"""The last three: UCX's transfers as they are submitted, their progress, and its other calls."""
_MESSAGE_COLUMNS = ("start", "end", "globalTid", "textId")
_COLLECTIVES = "MPI_COLLECTIVES_EVENTS"
_DETAILS = ("size", "recvSize", "tag", "remoteRank", "rootRank")


def messages(export: Tables) -> Iterator[ExportRows]:
    """One part for each table of these calls: calls at the level of libraries, as a send is a library's doing."""
    for table in MESSAGES:
        rows = export.integers(table, (*_MESSAGE_COLUMNS, *_DETAILS))
        findings = host_findings(rows, table)
        rows = rows_with_start(rows).drop("rowid")
        names = export.strings.of(rows["textId"]).fill_null(f"[unnamed {table[:3]} call]")
        spans = _call_spans(rows, Level.LIBRARY, names)
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


def mpi_ranks(export: Tables) -> Mapping[int, int]:
    """The MPI rank of each process that has one."""
    ranks = export.integers("MPI_RANKS", ("globalTid", "rank")).drop_nulls()
    ranks = ranks.select(process_of(pl.col("globalTid")), "rank").unique().filter(pl.len().over("globalTid") == 1)
    return dict(ranks.sort("globalTid").iter_rows())


# What the runtimes of OpenMP and OpenACC did for the directives of a program.

_PREFIXES = {"OPENMP_EVENT_KIND_": "OpenMP", "CUPTI_ACTIVITY_KIND_OPENACC_": "OpenACC"}
_DIRECTIVE_COLUMNS = ("start", "end", "globalTid", "nameId", "srcFile", "lineNo")


def directive_tables(tables: Collection[str]) -> Sequence[str]:
    """The tables of a file that hold such events: one for each kind of event, newer versions have more."""
    return sorted(table for table in tables if table.startswith(tuple(_PREFIXES)))


def directives(export: Tables) -> Iterator[ExportRows]:
    """One part for each of them: calls at the level of libraries, named as `OpenMP:Parallel`, `OpenACC:Wait@a.c:7`."""
    for table in directive_tables(export.tables):
        rows = export.integers(table, _DIRECTIVE_COLUMNS)
        findings = host_findings(rows, table)
        rows = rows_with_start(rows)
        if not rows.is_empty():
            yield ExportRows({"spans": _call_spans(rows, Level.LIBRARY, _names(export, table, rows))}, findings)


def _names(export: Tables, table: str, rows: pl.DataFrame) -> pl.Series:
    language = next(name for prefix, name in _PREFIXES.items() if table.startswith(prefix))
    names = export.strings.of(rows["nameId"]).cast(pl.String).fill_null(f"[unnamed {language} event]")
    files = export.strings.of(rows["srcFile"]).cast(pl.String)
    texts = rows.select("lineNo").with_columns(names.alias("name"), files.alias("file"))
    line = pl.format("@{}:{}", "file", "lineNo").fill_null("")
    return texts.select(name=pl.concat_str(pl.lit(f"{language}:"), "name", line))["name"]


# Calls of the operating system's runtime (pthread, read, poll): read only where the user asks for them.

OS_RUNTIME = "os_runtime"
"""The key of `Options.extra` that asks for these calls."""
_TABLE = "OSRT_API"
_OF_DEVICES = tuple(f"CUPTI_ACTIVITY_KIND_{which}" for which in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_OF_CALLS = Among("eventClass", (27,))  # the others mark where tracing of a process began and ended
_OS_COLUMNS = ("start", "end", "globalTid", "nameId")


def reads_os_runtime(tables: AbstractSet[str], options: Options) -> bool:
    """Whether these calls are read: asked for, or no work of a device is there, so that they are what is to be told."""
    return OS_RUNTIME in options.extra or not any(name.startswith(_OF_DEVICES) for name in tables)


def os_runtime(export: Tables, options: Options) -> ExportRows:
    """The calls at the level of libraries, below no launch and above none; or their number, where not requested.

    They are most of the rows of many reports, and at the level `runtime` they would count as calls of CUDA. Where the
    report has nothing of a device they are read unasked.
    """
    calls = _OF_CALLS if "eventClass" in export.columns(_TABLE) else None
    if not reads_os_runtime(export.tables, options):
        return ExportRows({}, _omitted_calls(export.count(_TABLE, calls)))
    rows = export.integers(_TABLE, _OS_COLUMNS, where=calls)
    findings = host_findings(rows, _TABLE)
    rows = rows_with_start(rows)
    names = export.strings.of(rows["nameId"]).fill_null("[unnamed OS call]")
    return ExportRows({"spans": _call_spans(rows, Level.LIBRARY, names)}, findings)


def _omitted_calls(count: int) -> tuple[Finding, ...]:
    if not count:
        return ()
    detail = "Calls of the operating system's runtime are not spans unless asked for"
    return (Finding(LedgerKind.OS_RUNTIME_LEFT_OUT, detail, count),)
