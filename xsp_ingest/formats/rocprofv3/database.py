"""The SQLite database that rocprofv3 writes since ROCm 6.4 (`--output-format rocpd`, the default since 7.0).

Facts from ROCprofiler-SDK: tables `source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql` (schema 3; `_<GUID>` behind
each name, one GUID a process), what is in them `source/lib/output/generateRocpd.cpp`. Process, thread, agent,
stream and times stand in the row itself, in later versions in `rocpd_track` and `rocpd_timestamp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.sqlite import Database, table_names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

__all__ = ["OneProcess", "processes", "suffixes"]

_TABLE = re.compile(r"rocpd_(kernel_dispatch|region)(_[0-9a-fA-F_]+)?")
_COLUMNS = ("pid", "tid", "agent_id", "stream_id")


def suffixes(tables: Collection[str]) -> list[str]:
    """What stands behind the names of each process's tables; none where the database is not rocprofv3's."""
    endings = sorted({match[2] or "" for name in tables if (match := _TABLE.fullmatch(name))})
    return [suffix for suffix in endings if {f"rocpd_{n}{suffix}" for n in ("event", "string", "track")} <= set(tables)]


def processes(path: Path) -> list[OneProcess]:
    """The processes of the file; XspError where it is damaged."""
    tables = table_names(path)
    database = Database(path, tables)
    return [OneProcess(database, suffix) for suffix in suffixes(tables)]


@dataclass(frozen=True)
class OneProcess:
    """The tables with one GUID."""

    database: Database
    suffix: str

    def name(self, table: str) -> str:
        """A table's full name."""
        return f"rocpd_{table}{self.suffix}"

    def integers(self, table: str, *columns: str) -> pl.DataFrame:
        """These columns, null where the version does not have them, in order of rowid."""
        return self.database.integers(self.name(table), columns).drop("rowid")

    def texts(self, table: str, column: str) -> pl.Series:
        """A column of texts, in the same order."""
        return self.database.texts(self.name(table), column)

    def numbers(self, table: str, column: str) -> pl.Series:
        """A column of any numbers, in the same order."""
        return self.database.numbers(self.name(table), column)

    @cached_property
    def strings(self) -> pl.DataFrame:
        """Texts by their ids."""
        return self.integers("string", "id").with_columns(self.texts("string", "string"))

    def named(self, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
        """Adds column `name`: the text of the id in column `own`."""
        texts = self.strings.select(pl.col("id").alias(own), pl.col("string").alias(name))
        return rows.join(texts.unique(own, keep="first"), on=own, how="left", maintain_order="left")

    def timed(self, table: str, *columns: str) -> pl.DataFrame:
        """These columns of device work or calls, with `start`, `end`, `pid`, `tid`, `agent_id` and `stream_id`."""
        has = self.database.columns(self.name(table))
        if "start_id" in has:
            rows = self.integers(table, "track_id", "start_id", "end_id", *columns)
            rows = self._at(self._at(rows, "start_id", "start"), "end_id", "end")
        elif "timestamp_id" in has or "timestamp" in has:  # a sample: of no duration
            rows = self.integers(table, "track_id", "timestamp_id", "timestamp", *columns)
            rows = self._at(rows, "timestamp_id", "moment").with_columns(start=pl.coalesce("moment", "timestamp"))
            rows = rows.with_columns(end="start")
        else:
            rows = self.integers(table, *_COLUMNS, "start", "end", *columns)
        placed = rows if "track_id" not in rows.columns else self._tracked(rows)
        return self._numbered(self._numbered(placed, "pid", "info_process"), "tid", "info_thread")

    def _at(self, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
        times = self.integers("timestamp", "id", "value").rename({"id": own, "value": name})
        return rows.join(times.unique(own, keep="first"), on=own, how="left", maintain_order="left")

    def _tracked(self, rows: pl.DataFrame) -> pl.DataFrame:
        tracks = self.integers("track", "id", *_COLUMNS).rename({"id": "track_id"})
        return rows.join(tracks.unique("track_id", keep="first"), on="track_id", how="left", maintain_order="left")

    def _numbered(self, rows: pl.DataFrame, column: str, table: str) -> pl.DataFrame:
        """The system's number of a process or thread for the id that refers to it."""
        own = self.integers(table, "id", column).select(pl.col("id").alias(column), pl.col(column).alias("number"))
        joined = rows.join(own.unique(column, keep="first"), on=column, how="left", maintain_order="left")
        return joined.with_columns(pl.coalesce("number", column).alias(column)).drop("number")

    def events(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds `correlation`, the internal id, which stands in `stack_id`, and `category_id`, by `event_id`."""
        columns: Sequence[str] = ("id", "stack_id", "category_id")
        events = self.integers("event", *columns).rename({"id": "event_id", "stack_id": "correlation"})
        return rows.join(events.unique("event_id", keep="first"), on="event_id", how="left", maintain_order="left")
