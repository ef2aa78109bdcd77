"""Reads the SQLite files that `nsys export` writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.sqlite import MAGIC, Database, check_header, table_names
from xsp_ingest.formats.nsys.tables.interface import META_TABLES, is_complete, is_export, later_versions
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import polars as pl

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NSYS_SQLITE"]


class NsysSqlite(Ingester):
    """The ingester of `nsys export --type sqlite` files."""

    name: str = "nsys_sqlite"
    title: str = "Nsight Systems SQLite export (schemas 2.9 to 3.25 seen: nsys 2020 to 2026.2)"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file is a SQLite database with Nsight's table of export data."""
        if not probe.head.startswith(MAGIC):
            return Match.NONE
        try:
            return Match.exact_if(is_export(table_names(probe.path)))
        except XspError:
            # A damaged database: Nsight's if the name of that table stands in what can be read of its schema.
            return Match.exact_if(any(table.encode() in probe.head for table in META_TABLES))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is no SQLite database, damaged, or not Nsight's."""
        from xsp_ingest.formats.nsys.tables.read import read_tables

        tables = _nsight_tables(path)
        return _with_doubt(read_tables(Database(path, tables), options), tables)

    def read_excerpt(self, path: Path, columns: Mapping[str, Collection[str]]) -> Mapping[str, pl.DataFrame]:
        """Tables of a trace with these sorts of rows alone, not linked; see `xsp_ingest.convert`."""
        from xsp_ingest.formats.nsys.sqlite.parts import read_excerpt
        from xsp_ingest.formats.nsys.tables.host import mpi_ranks

        database = Database(path, _nsight_tables(path))
        if later_versions(database):
            raise XspError("tables have other names than these rows are known by: they are read as a whole", path=path)
        if len(set(mpi_ranks(database).values())) > 1:
            raise XspError("processes of several ranks are a run each: they are read as a whole", path=path)
        return read_excerpt(database, columns)

    def read_part(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The part that the options select; large tables are not read whole for it."""
        from xsp_ingest.formats.nsys.sqlite.parts import pushdown
        from xsp_ingest.formats.nsys.tables.host import reads_os_runtime
        from xsp_ingest.formats.nsys.tables.read import read_tables
        from xsp_ingest.staging.selection import narrow

        (path,) = paths
        tables = _nsight_tables(path)
        conditions = pushdown(Database(path, tables), options.selection, os_runtime=reads_os_runtime(tables, options))
        raw = read_tables(Database(path, tables, conditions.conditions), options)
        raw = _with_doubt(raw, tables)
        return [narrow(raw, options.selection, zero_ns=conditions.zero_ns, skipped=conditions.skipped)]


def _with_doubt(raw: RawTrace, tables: AbstractSet[str]) -> RawTrace:
    """The rows, with a finding where nothing says what was captured: nsys writes that last."""
    return raw if is_complete(tables) else replace(raw, findings=(*raw.findings, Finding(LedgerKind.EXPORT_BROKEN_OFF)))


def _nsight_tables(path: Path) -> frozenset[str]:
    check_header(path)
    tables = table_names(path)
    if not is_export(tables):
        raise XspError(
            "a SQLite database, but not one that Nsight Systems exported",
            path=path,
            advice="Export a .nsys-rep file with `nsys export --type sqlite`",
        )
    return tables


NSYS_SQLITE = NsysSqlite()
