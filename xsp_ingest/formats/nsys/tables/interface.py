"""Nsight's tables as the reader asks for them, whatever kind of export holds them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import polars as pl

    from xsp_ingest.files.values import Among, Strings

__all__ = ["META_TABLES", "Noted", "Tables", "is_export", "process_of", "tables_not_read", "thread_of"]

META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the second: before nsys 2023
_ACTIVITY_TABLES = {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")}


def is_export(tables: AbstractSet[str]) -> bool:
    """Whether tables of these names are of an export, if only of one that was broken off after what CUDA did."""
    begun = "StringIds" in tables and not tables.isdisjoint(_ACTIVITY_TABLES)  # nvprof's strings are in StringTable
    return begun or not tables.isdisjoint(META_TABLES)


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

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.of.path

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it holds."""
        return self.of.tables

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
        return self.of.columns(table)

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; who counts them accounts for them."""
        self.used.add(table)
        return self.of.count(table, where)

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table."""
        self.used.add(table)
        return self.of.integers(table, columns, where=where)

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column."""
        self.used.add(table)
        return self.of.texts(table, column, where=where)

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers."""
        self.used.add(table)
        return self.of.numbers(table, column, where=where)

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns of these rows."""
        self.used.add(table)
        return self.of.cells(table, columns, rowids)

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column."""
        self.used.add(table)
        return self.of.whole_rows(table, rowids)


def tables_not_read(export: Noted) -> Iterator[Finding]:
    """One finding for each table with events that nobody asked for; names that no exporter gives are not repeated."""
    for table in sorted(export.tables - export.used):
        count = 0 if _DESCRIPTIONS.match(table) else export.of.count(table)
        if count:
            name = table if _SOUND.fullmatch(table) else "a table whose name is none of Nsight's"
            yield Finding(LedgerKind.TABLE_NOT_READ, f"Rows of {name} were not read", count)
