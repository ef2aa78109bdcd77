"""Calls of the operating system's runtime (pthread, read, poll): read only where the user asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.stored_columns import Among
from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options

__all__ = ["OS_RUNTIME", "os_runtime"]

OS_RUNTIME = "os_runtime"
"""The key of `Options.extra` that asks for these calls."""

_TABLE = "OSRT_API"
_OF_CALLS = Among("eventClass", (27,))  # the others mark where tracing of a process began and ended
_COLUMNS = ("start", "end", "globalTid", "nameId")


def os_runtime(export: Tables, options: Options) -> ExportRows:
    """The calls at the level of libraries, below no launch and above none; or their number, where not requested.

    They are most of the rows of many reports, and at the level `runtime` they would count as calls of CUDA.
    """
    calls = _OF_CALLS if "eventClass" in export.columns(_TABLE) else None
    if OS_RUNTIME not in options.extra:
        return ExportRows({}, _omitted_calls(export.count(_TABLE, calls)))
    rows = export.integers(_TABLE, _COLUMNS, where=calls)
    findings = host_findings(rows, _TABLE)
    rows = rows.filter(pl.col("start").is_not_null())
    spans = rows.with_row_index("row").select(
        pl.col("row").cast(pl.Int64),
        pl.lit(str(Level.LIBRARY)).alias("level"),
        pl.lit(str(Kind.CALL)).alias("kind"),
        export.strings.of(rows["nameId"]).fill_null("[unnamed OS call]").alias("name"),
        pl.col("start").alias("start_ns"),
        closed_duration(),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
    )
    return ExportRows({"spans": spans}, findings)


def _omitted_calls(count: int) -> tuple[Finding, ...]:
    if not count:
        return ()
    detail = "Calls of the operating system's runtime are not spans unless asked for"
    return (Finding(LedgerKind.OS_RUNTIME_LEFT_OUT, detail, count),)
