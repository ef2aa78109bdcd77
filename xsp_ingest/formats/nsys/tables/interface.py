"""Nsight's tables as the reader asks for them, and the checks that every kind of row goes through."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import polars as pl

from xsp_ingest.staging.raw import RAW_TABLES, Stage, frame_of
from xsp_model import Finding, LedgerKind, Level, Severity
from xsp_model.ledger import sum_counts
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from xsp_ingest.files.values import Among, Strings

__all__ = [
    "META_TABLES",
    "ExportRows",
    "Joined",
    "Noted",
    "Tables",
    "is_complete",
    "is_export",
    "join",
    "label",
    "later_versions",
    "process_of",
    "rows_with_start",
    "tables_not_read",
    "thread_of",
]

META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the second: before nsys 2023
_ACTIVITY_TABLES = {
    *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE")),
    *("NVTX_EVENTS", "OSRT_API"),
}
_LAST_TABLES = {
    "ThreadNames",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_STREAM",
}  # of nsys 2020 and 2021, which write no other


def is_export(tables: AbstractSet[str]) -> bool:
    """Whether tables of these names are of an export, if only of one that was broken off after what it recorded."""
    begun = "StringIds" in tables and not tables.isdisjoint(_ACTIVITY_TABLES)  # nvprof's strings are in StringTable
    return begun or not tables.isdisjoint(META_TABLES)


def is_complete(tables: AbstractSet[str]) -> bool:
    """Whether the export was written to its end: what says of which version it is, or what older ones wrote last."""
    return not tables.isdisjoint(META_TABLES) or tables >= _LAST_TABLES


class Tables(Protocol):
    """One export; row numbers are those of the SQLite form, from 1."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it holds."""

    @property
    def unreadable_texts(self) -> int:
        """Texts read so far that were not UTF-8 and had bytes replaced."""

    @property
    def strings(self) -> Strings:
        """The table StringIds."""

    @property
    def total_bytes(self) -> int:
        """Its size on disk."""

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where the export lacks it."""

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; 0 where the export lacks the table."""

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table with its rowid; those that it lacks are null, a missing table is empty."""

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column in order of rowid, bytes that are not UTF-8 replaced and counted; null where missing."""

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers as Float64 in order of rowid; null where missing or no number."""

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns, which the table has, of these rows, values as they are stored, in order of rowid."""

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column, in order of rowid."""


# Nsight's serialised process and thread ids: 8 bits of hardware, 8 of virtual machine, 24 of process, 24 of thread.
_BITS = 24
_SPACE = 1 << _BITS


def process_of(column: pl.Expr) -> pl.Expr:
    """The operating system's process id in a `globalPid` or `globalTid`."""
    # Floor division and remainder are shift and mask, for negative (unsigned in origin) values too.
    return (column // _SPACE) % _SPACE


def thread_of(column: pl.Expr) -> pl.Expr:
    """The operating system's thread id in a `globalTid`."""
    return column % _SPACE


# What an export holds that nothing was made of: each table by its name, with its rows.

# What describes machine, programs and the export itself: nothing in it happened at a time.
_DESCRIPTIONS = re.compile(
    r"ENUM_|META_DATA_|TARGET_INFO_|ANALYSIS_|NVTX_PAYLOAD_|(PROCESSES|ProcessStreams|ThreadNames|UnwindMethodType"
    r"|EXPORT_META_DATA|StringIds|sqlite_sequence|MPI_RANKS|MPI_COMMUNICATORS|NIC_ID_MAP)$"
)
_SOUND = re.compile(r"\w{1,80}")


@dataclass(frozen=True)
class Noted:
    """An export that notes of which tables rows were taken; it answers as the one that it stands for."""

    of: Tables
    used: set[str] = field(default_factory=set)
    versions: Mapping[str, str] = field(default_factory=dict)  # `later_versions` of the export

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.of.path

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it holds."""
        return self.of.tables | self.versions.keys()

    @property
    def unreadable_texts(self) -> int:
        """Texts read so far that were not UTF-8."""
        return self.of.unreadable_texts

    @property
    def strings(self) -> Strings:
        """The table StringIds."""
        return self.of.strings

    @property
    def total_bytes(self) -> int:
        """Its size on disk."""
        return self.of.total_bytes

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table."""
        return self.of.columns(self.versions.get(table, table))

    def _stored_name(self, table: str) -> str:
        """The name that the table has in the file; it is used from now on."""
        stored = self.versions.get(table, table)
        self.used.add(stored)
        return stored

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; who counts them accounts for them."""
        return self.of.count(self._stored_name(table), where)

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table."""
        return self.of.integers(self._stored_name(table), columns, where=where)

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column."""
        return self.of.texts(self._stored_name(table), column, where=where)

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers."""
        return self.of.numbers(self._stored_name(table), column, where=where)

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns of these rows."""
        return self.of.cells(self._stored_name(table), columns, rowids)

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column."""
        return self.of.whole_rows(self._stored_name(table), rowids)


_VERSION = re.compile(r"([A-Z_]+)_V(\d{1,9})")


def later_versions(export: Tables) -> Mapping[str, str]:
    """For the name of each table that is missing or empty its latest version in the file, as NVTX_EVENTS_V3."""
    matches = sorted((m for t in export.tables if (m := _VERSION.fullmatch(t))), key=lambda m: (m[1], int(m[2])))
    return {match[1]: match[0] for match in matches if not export.count(match[1]) and export.count(match[0])}


def tables_not_read(export: Noted) -> Iterator[Finding]:
    """One finding for each table with events that nobody asked for; names that no exporter gives are not repeated."""
    for table in sorted(export.of.tables - export.used):
        count = 0 if _DESCRIPTIONS.match(table) else export.of.count(table)
        if count:
            name = table if _SOUND.fullmatch(table) else "a table whose name is none of Nsight's"
            severity = Severity.WARNING if _VERSION.fullmatch(table) else LedgerKind.TABLE_NOT_READ.severity
            yield Finding(LedgerKind.TABLE_NOT_READ, f"Rows of {name} were not read", count, severity)


# What a part of the reader hands over, and the checks that every kind of row goes through.


@dataclass(frozen=True)
class ExportRows:
    """Rows for tables of a RawTrace from one table of the file; `row` counts from 0 in each part."""

    tables: Mapping[str, pl.DataFrame]
    findings: tuple[Finding, ...] = field(default=())


def label(values: pl.Expr, labels: Mapping[int, str], *, otherwise: str | None = None) -> pl.Expr:
    """The labels of these codes; `otherwise` for codes that have none, null for null."""
    return values.replace_strict(
        labels, default=pl.when(values.is_not_null()).then(pl.lit(otherwise)), return_dtype=pl.String
    )


def rows_with_start(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have a start."""
    return rows.filter(pl.col("start").is_not_null()) if rows["start"].null_count() else rows


class Joined:
    """All parts as one set of raw tables, `row` made unique over them; large tables are on disk, part by part."""

    def __init__(self, session_ns: int | None) -> None:
        """`session_ns`: how long the capture was, where that is known."""
        self._session_ns = session_ns
        self._held: dict[str, list[pl.DataFrame]] = {name: [] for name in RAW_TABLES}
        self._staged: dict[str, Stage] = {}
        self._findings: list[Finding] = []
        self._absurd: list[Finding] = []
        self._rows = 0
        self.first_ns: int | None = None
        """When the first span began."""
        self.used = pl.DataFrame(schema={"process_id": pl.Int64, "device_id": pl.Int64})
        """The devices that each process used."""

    def add(self, part: ExportRows) -> None:
        """Adds the part; it is needed no longer then."""
        self._findings += part.findings
        for name, frame in part.tables.items():
            self._put(name, self._take_note(frame) if name == "spans" else frame)
        self._rows += part.tables["spans"].height if "spans" in part.tables else 0

    def _take_note(self, spans: pl.DataFrame) -> pl.DataFrame:
        spans, absurd = without_absurd(spans, self._session_ns)
        self._absurd += absurd
        starts = [ns for ns in (self.first_ns, spans["start_ns"].min()) if isinstance(ns, int)]
        self.first_ns = min(starts, default=None)
        if "device_id" in spans.columns:
            work = spans.filter(pl.col("level").cast(pl.String) == Level.KERNEL).select(self.used.columns).drop_nulls()
            self.used = pl.concat([self.used, work.unique()]).unique().sort(self.used.columns)
        return spans

    def _put(self, name: str, frame: pl.DataFrame) -> None:
        held = self._held[name]
        if name not in self._staged and sum(each.height for each in (*held, frame)) < limits().nsys_staged_min_rows:
            held.append(self._complete(name, frame))
            return
        stage = self._staged.setdefault(name, Stage(RAW_TABLES[name]))
        while held:
            stage.add(held.pop(0))
        for piece in frame.iter_slices(limits().nsys_staged_piece_rows):
            stage.add(self._complete(name, piece))

    def _complete(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame_of(name, frame)
        return rows.with_columns(pl.col("row") + self._rows) if "row" in rows.columns else rows

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables; nothing can be added afterwards."""
        return {name: self._table(name) for name in RAW_TABLES}

    def _table(self, name: str) -> pl.DataFrame:
        if name in self._staged:
            return self._staged.pop(name).frame()
        return pl.concat(self._held[name]) if self._held[name] else frame_of(name)

    def findings(self) -> tuple[Finding, ...]:
        """What was found odd."""
        return (*self._findings, *sum_counts(self._absurd))


def join(parts: Iterable[ExportRows]) -> tuple[dict[str, pl.DataFrame], tuple[Finding, ...]]:
    """All parts as one set of raw tables, and what was found odd in them."""
    joined = Joined(None)
    for part in parts:
        joined.add(part)
    return joined.tables(), joined.findings()


def without_absurd(spans: pl.DataFrame, session_ns: int | None) -> tuple[pl.DataFrame, tuple[Finding, ...]]:
    """The spans with host durations longer than the whole capture made unknown; the device's are kept; both counted."""
    if session_ns is None or not (spans["duration_ns"] > session_ns).any():
        return spans, ()
    long = (pl.col("duration_ns") > session_ns).fill_null(value=False)
    device = pl.col("level").cast(pl.String) == Level.KERNEL
    what = "that are longer than the whole capture"
    findings = (
        Finding(
            LedgerKind.ABSURD_DURATION,
            f"Device activities {what}; kept as they are",
            spans.filter(long, device).height,
            severity=Severity.WARNING,
        ),
        Finding(
            LedgerKind.ABSURD_DURATION,
            f"Host spans {what}; kept, their duration unknown",
            spans.filter(long, ~device).height,
            severity=Severity.WARNING,
        ),
    )
    kept = pl.when(~(long & ~device)).then(pl.col("duration_ns")).alias("duration_ns")
    return spans.with_columns(kept), tuple(f for f in findings if f.count)
