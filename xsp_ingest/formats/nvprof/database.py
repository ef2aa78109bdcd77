"""An nvprof database as CUPTI's records by kind: its tables are CUPTI's, its names numbers in a table of texts."""

# ruff: noqa: S608 (SQL cannot bind names of tables and columns; all that are put in are literals of this package)
from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.sqlite import Database, check_header, table_names
from xsp_ingest.files.stored_columns import strings_by_id
from xsp_ingest.formats.nvprof.callbacks import DRIVER_CALLS, RUNTIME_CALLS
from xsp_ingest.staging.cupti_fields import KINDS, Records
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PREFIX", "STRINGS", "is_nvprof", "read_records"]

PREFIX = "CUPTI_ACTIVITY_KIND_"
STRINGS = "StringTable"
_AGAIN = "Copy the file again, or profile again with `nvprof -o FILE`"
_USED = (
    *("KERNEL", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "RUNTIME", "DRIVER", "SYNCHRONIZATION"),
    *("MARKER", "OVERHEAD", "DEVICE"),
)
_COUNTED = ("METRIC", "METRIC_INSTANCE", "EVENT", "EVENT_INSTANCE", "CDP_KERNEL", "UNIFIED_MEMORY_COUNTER")
_TEXTS = ("name", "domain")
_ON_DEVICE = ("KERNEL", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "SYNCHRONIZATION")
_CALLS: Mapping[str, Mapping[int, str]] = {"RUNTIME": RUNTIME_CALLS, "DRIVER": DRIVER_CALLS}
_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD: the object of a marker is a process and a thread
_THREAD_BITS = 0xFFFFFFFF
_OBJECT = r"^([0-9A-F]{8})([0-9A-F]{8})"


class _NvprofDatabase(Database):
    """Numbers are taken only where numbers are stored: a text in their place is nothing, not 0."""

    def integers(self, table: str, columns: Sequence[str], **_: object) -> pl.DataFrame:
        """Integer columns of a table with its rowid; null where the table lacks them or holds another type."""
        present = [c for c in columns if c in self.columns(table)]
        if table not in self.tables:
            return pl.DataFrame(schema=dict.fromkeys(("rowid", *columns), pl.Int64))
        listed = ", ".join(f'IIF(typeof("{c}") = \'integer\', "{c}", NULL) AS "{c}"' for c in present)
        query = f'SELECT {", ".join(filter(None, ("rowid AS rowid", listed)))} FROM "{table}" ORDER BY rowid'
        rows = self._bulk(query, dict.fromkeys(("rowid", *present), pl.Int64()), self._row_bound(table))
        absent = (pl.lit(None, pl.Int64).alias(c) for c in columns if c not in present)
        return rows.with_columns(*absent).select(pl.col(c).cast(pl.Int64) for c in ("rowid", *columns))

    def hexes(self, table: str, column: str) -> pl.Series:
        """The bytes of a column as hexadecimal digits, in order of rowid; null where missing."""
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table), dtype=pl.String)
        query = f'SELECT hex("{column}") AS "{column}" FROM "{table}" ORDER BY rowid'
        return self._bulk(query, {column: pl.String()}, self._row_bound(table))[column].cast(pl.String)


def is_nvprof(tables: frozenset[str]) -> bool:
    """Whether tables of these names are an nvprof database's."""
    return STRINGS in tables and any(name.startswith(PREFIX) for name in tables)


def read_records(path: Path) -> Records:
    """The database's records; XspError where it is damaged, or not nvprof's."""
    try:
        check_header(path)
        return _records(_NvprofDatabase(path, _nvprof_tables(path)))
    except XspError as error:  # what it advises is for databases of Nsight
        raise XspError(error.what, path=path, advice=_AGAIN) from error


def _nvprof_tables(path: Path) -> frozenset[str]:
    tables = table_names(path)
    if not is_nvprof(tables):
        raise XspError("a SQLite database, but not one that nvprof wrote", path=path)
    return tables


def _records(database: _NvprofDatabase) -> Records:
    ids = database.integers(STRINGS, ("_id_",))["_id_"]
    strings = strings_by_id(ids, database.texts(STRINGS, "value"))
    kinds: dict[str, pl.DataFrame] = {}
    first = 0
    for kind in _USED:
        if PREFIX + kind in database.tables:
            frame = _table(database, kind).with_columns(pl.col("row") + first)
            named = {name: strings.of(frame[name]).cast(pl.String) for name in _TEXTS if name in frame.columns}
            kinds[kind] = frame.with_columns(**named)
            first += frame.height
    for kind, names in _CALLS.items():
        if kind in kinds:
            kinds[kind] = _with_call_names(kinds[kind], names)
    process = _only_process(kinds)
    kinds |= {kind: _with_process(kinds[kind], kinds, process) for kind in _ON_DEVICE if kind in kinds}
    counted = sum(database.count(PREFIX + kind) for kind in _COUNTED)
    return Records(process, kinds, [*_unread(database, counted), *_unclear(kinds)])


def _table(database: _NvprofDatabase, kind: str) -> pl.DataFrame:
    """A table with the fields of its kind; texts are still numbers."""
    fields = KINDS[kind]
    rows = database.integers(PREFIX + kind, fields)
    frame = rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), *fields)
    if kind == "MARKER":
        return _with_thread(frame, database.hexes(PREFIX + kind, "objectId"), database)
    if "threadId" in fields:
        return frame.with_columns(pl.col("threadId") & _THREAD_BITS)
    return frame


def _with_thread(markers: pl.DataFrame, objects: pl.Series, database: _NvprofDatabase) -> pl.DataFrame:
    """Process and thread of each marker from the bytes of its object: two little-endian numbers of 32 bits."""
    kind = database.integers(PREFIX + "MARKER", ("objectKind",))["objectKind"]
    parts = objects.str.to_uppercase().str.extract_groups(_OBJECT).struct.unnest()
    process, thread = (_little_endian(parts.to_series(n)) for n in (0, 1))
    of_thread = pl.lit(kind == _THREAD)
    return markers.with_columns(
        pl.when(of_thread).then(pl.lit(process)).alias("processId"),
        pl.when(of_thread).then(pl.lit(thread)).alias("threadId"),
    )


def _little_endian(digits: pl.Series) -> pl.Series:
    swapped = pl.concat_str(pl.col("digits").str.slice(2 * n, 2) for n in (3, 2, 1, 0))
    frame = pl.DataFrame({"digits": digits})
    return frame.select(swapped.str.to_integer(base=16, strict=False, dtype=pl.Int64)).to_series()


def _with_call_names(calls: pl.DataFrame, names: Mapping[int, str]) -> pl.DataFrame:
    name = pl.col("cbid").replace_strict(dict(names), default=None, return_dtype=pl.String)
    return calls.with_columns(name.alias("name"))


def _only_process(kinds: Mapping[str, pl.DataFrame]) -> int | None:
    """The process that all calls were made in; None where there are several, or none."""
    columns = [kinds[kind]["processId"] for kind in (*_CALLS, "MARKER") if kind in kinds]
    processes = pl.concat(columns).drop_nulls().unique() if columns else pl.Series(dtype=pl.Int64)
    return int(processes[0]) if len(processes) == 1 else None


def _with_process(rows: pl.DataFrame, kinds: Mapping[str, pl.DataFrame], process: int | None) -> pl.DataFrame:
    """Device work does not say its process: it is that of its launch, where only one process has that number."""
    if process is not None or not set(_CALLS) & set(kinds):
        return rows
    calls = pl.concat([kinds[kind].select("correlationId", "processId") for kind in _CALLS if kind in kinds])
    owners = calls.drop_nulls().group_by("correlationId").agg(pl.col("processId").unique())
    single = owners.filter(pl.col("processId").list.len() == 1).select(
        "correlationId", pl.col("processId").list.first().alias("owner")
    )
    joined = rows.join(single, on="correlationId", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("processId", "owner").alias("processId")).drop("owner")


def _unread(database: _NvprofDatabase, counted: int) -> list[Finding]:
    detail = "records of counters, of unified memory and of kernels launched by kernels, which are not read"
    return [
        Finding(LedgerKind.RECORDS_NOT_READ, detail, counted),
        Finding(LedgerKind.NOT_UTF8, count=database.unreadable_texts),
    ]


def _unclear(kinds: Mapping[str, pl.DataFrame]) -> list[Finding]:
    calls = [kinds[kind] for kind in _CALLS if kind in kinds]
    several = bool(calls) and pl.concat([rows.select("processId") for rows in calls])["processId"].n_unique() > 1
    unclear = sum(kinds[kind]["processId"].null_count() for kind in _ON_DEVICE if kind in kinds) if several else 0
    return [Finding(LedgerKind.UNCLEAR_PROCESS, count=unclear)]
