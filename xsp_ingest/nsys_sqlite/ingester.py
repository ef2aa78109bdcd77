"""Reads Nsight Systems SQLite exports of any schema, by the tables and columns that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.nsys_sqlite.activities import activities
from xsp_ingest.nsys_sqlite.database import MAGIC, Database, check_header, table_names
from xsp_ingest.nsys_sqlite.devices import devices
from xsp_ingest.nsys_sqlite.facts import META_TABLES, complaints, run_facts, session_ns
from xsp_ingest.nsys_sqlite.host import host_calls
from xsp_ingest.nsys_sqlite.nvtx import nvtx_ranges
from xsp_ingest.nsys_sqlite.rows import join, without_absurd
from xsp_ingest.raw import RawTrace
from xsp_model import Finding, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_ingest.ingester import Options, Probe

__all__ = ["NsysSqlite"]


@dataclass(frozen=True, slots=True)
class NsysSqlite:
    """The ingester of `nsys export --type sqlite` files."""

    name: str = "nsys_sqlite"
    title: str = "Nsight Systems SQLite export (schemas 2.9 to 3.25 seen: nsys 2022.2 to 2026.2)"

    def sniff(self, probe: Probe) -> bool:
        """Whether the file is a SQLite database with Nsight's table of export data."""
        if not probe.head.startswith(MAGIC):
            return False
        try:
            return not table_names(probe.path).isdisjoint(META_TABLES)
        except XspError:
            # A damaged database: Nsight's if the name of that table stands in what can be read of its schema.
            return any(table.encode() in probe.head for table in META_TABLES)

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is no SQLite database, damaged, or not Nsight's."""
        database = Database(path, _nsight_tables(path))
        parts = (*activities(database), *host_calls(database), nvtx_ranges(database, options), devices(database))
        tables, findings = join(parts)
        tables["spans"], absurd = without_absurd(tables["spans"], session_ns(database))
        findings = (*findings, *absurd, *complaints(database), *_left_out(database))
        return RawTrace(tables, run_facts(database), findings)


def _nsight_tables(path: Path) -> frozenset[str]:
    check_header(path)
    tables = table_names(path)
    if tables.isdisjoint(META_TABLES):
        raise XspError(
            "a SQLite database, but not one that Nsight Systems exported",
            path=path,
            advice="Export a .nsys-rep file with `nsys export --type sqlite`",
        )
    return tables


def _left_out(database: Database) -> Iterator[Finding]:
    if database.unreadable_texts:
        yield Finding(
            "not_utf8",
            "Texts that are not UTF-8; their foreign bytes show as U+FFFD",
            database.unreadable_texts,
            Severity.INFO,
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in database.tables:
        yield Finding(
            "no_kernel_table",
            "The file has no table of kernels: no kernel was recorded, or CUDA was not traced",
            advice="Capture with `nsys profile --trace=cuda,nvtx`",
        )
