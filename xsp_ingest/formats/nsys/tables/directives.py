"""What the runtimes of OpenMP and OpenACC did for the directives of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nsys.tables.host import closed_duration, host_findings
from xsp_ingest.formats.nsys.tables.identifiers import process_of, thread_of
from xsp_ingest.formats.nsys.tables.rows import ExportRows
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["directive_tables", "directives"]

_PREFIXES = {"OPENMP_EVENT_KIND_": "OpenMP", "CUPTI_ACTIVITY_KIND_OPENACC_": "OpenACC"}
_COLUMNS = ("start", "end", "globalTid", "nameId", "srcFile", "lineNo")


def directive_tables(tables: Collection[str]) -> Sequence[str]:
    """Those of a file that hold such events: one for each kind of event, newer versions have more."""
    return sorted(table for table in tables if table.startswith(tuple(_PREFIXES)))


def directives(export: Tables) -> Iterator[ExportRows]:
    """One part for each of them: calls at the level of libraries, named as `OpenMP:Parallel`, `OpenACC:Wait@a.c:7`."""
    for table in directive_tables(export.tables):
        rows = export.integers(table, _COLUMNS)
        findings = host_findings(rows, table)
        rows = rows.filter(pl.col("start").is_not_null())
        if not rows.is_empty():
            yield ExportRows({"spans": _spans(rows.with_columns(_names(export, table, rows)))}, findings)


def _names(export: Tables, table: str, rows: pl.DataFrame) -> pl.Series:
    language = next(name for prefix, name in _PREFIXES.items() if table.startswith(prefix))
    names = export.strings.of(rows["nameId"]).cast(pl.String).fill_null(f"[unnamed {language} event]")
    files = export.strings.of(rows["srcFile"]).cast(pl.String)
    texts = rows.select("lineNo").with_columns(names.alias("name"), files.alias("file"))
    line = pl.format("@{}:{}", "file", "lineNo").fill_null("")
    return texts.select(name=pl.concat_str(pl.lit(f"{language}:"), "name", line))["name"]


def _spans(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_row_index("row").select(
        pl.col("row").cast(pl.Int64),
        pl.lit(str(Level.LIBRARY)).alias("level"),
        pl.lit(str(Kind.CALL)).alias("kind"),
        "name",
        pl.col("start").alias("start_ns"),
        closed_duration(),
        process_of(pl.col("globalTid")).alias("process_id"),
        thread_of(pl.col("globalTid")).alias("thread_id"),
    )
