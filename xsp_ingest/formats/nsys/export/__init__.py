"""Reads what `nsys export` writes besides SQLite: Parquet and Arrow folders, an Arrow stream, JSON lines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.formats.nsys.tables.interface import META_TABLES
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.nsys.export.tables import Stored
    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NSYS_EXPORT"]

_STREAM_START = b"\xff\xff\xff\xff"
_NAMED = b"table_name"
_ENDINGS = (".parquet", ".arrow")
_STRINGS = re.compile(rb'^\s*\{"data":\["\[Unknown\]"')
_EVENT = re.compile(rb'^\s*\{"Type":\d+,"\w+Event\w*":\{', re.MULTILINE)
_STRING = re.compile(rb'^\s*\{"type":"String","id":"\d+"', re.MULTILINE)


class NsysExport(Ingester):
    """The ingester of `nsys export --type parquetdir | arrowdir | arrow | json | jsonlines`."""

    name: str = "nsys_export"
    title: str = "Nsight Systems Parquet, Arrow and JSON-lines exports (nsys 2023.4 seen)"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file is an Arrow stream that names Nsight's tables, or Nsight's events line by line."""
        if probe.head.startswith(_STREAM_START):
            return Match.exact_if(_NAMED in probe.head and b"StringIds" in probe.head)
        return Match.exact_if(any(start.match(probe.text) for start in (_STRINGS, _EVENT, _STRING)))

    def sniff_folder(self, folder: Path) -> bool:
        """Whether the folder holds Nsight's table of export data as Parquet or Arrow."""
        return any((folder / f"{table}{ending}").is_file() for table in META_TABLES for ending in _ENDINGS)

    def read(self, path: Path, options: Options) -> RawTrace:
        """The export's rows; XspError where a table that is needed cannot be read."""
        from xsp_ingest.formats.nsys.tables.read import read_tables

        export = _open_export(path)
        raw = read_tables(export, options)
        return replace(raw, findings=(*raw.findings, *_omitted_kinds(export)))


def _omitted_kinds(export: Tables) -> Iterator[Finding]:
    from xsp_ingest.formats.nsys.export.tables import Collected

    if isinstance(export, Collected) and export.left_out:
        kinds = ", ".join(sorted(export.left_out))
        detail = f"Events of kinds that are not read from JSON: {kinds}"
        yield Finding(LedgerKind.EVENTS_LEFT_OUT, detail, export.left_out.total())


def _open_export(path: Path) -> Tables:
    from xsp_ingest.formats.nsys.export.tables import Frames, read_json_lines, streams_of

    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        head = file.read(len(_STREAM_START))
    if head != _STREAM_START:
        return read_json_lines(path)
    return Frames(path, _with_known_tables(streams_of(path), path), path.stat().st_size)


def _folder(path: Path) -> Tables:
    from xsp_ingest.formats.nsys.export.tables import ArrowFile, Frames, ParquetFile

    stored: dict[str, Stored] = {}
    size = 0
    for ending, kind in zip(_ENDINGS, (ParquetFile, ArrowFile), strict=True):
        for file in sorted(path.glob(f"*{ending}")):
            if file.is_file() and not file.is_symlink():
                stored.setdefault(file.stem, kind(file))
                size += file.stat().st_size
    return Frames(path, _with_known_tables(stored, path), size)


def _with_known_tables(stored: Mapping[str, Stored], path: Path) -> Mapping[str, Stored]:
    if not any(table in stored for table in META_TABLES):
        raise XspError(
            "the export lacks its table META_DATA_EXPORT",
            path=path,
            advice="Export the .nsys-rep file again; do not leave tables out",
        )
    return stored


NSYS_EXPORT = NsysExport()
