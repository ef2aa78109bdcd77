"""Tables of `nsys export`: Parquet files and Arrow streams, column by column, and events in JSON lines."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from xsp_ingest.files.content import lines
from xsp_ingest.files.values import Among, Strings, decode_texts, strings_by_id, with_sane_times
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["ArrowFile", "Collected", "Frames", "ParquetFile", "Stored", "read_json_lines", "streams_of"]

# Tables of Parquet files and Arrow streams, one or several in a file, read column by column.

_ROWS_PER_BYTE = 16  # no table of times packs tighter; one that says so would burst
_SMALL_ROWS = 1 << 20
_AGAIN = "Export the .nsys-rep file again"
_TABLE_NAME = b"table_name"


@dataclass(frozen=True)
class ParquetFile:
    """A table of `nsys export --type parquetdir`."""

    path: Path

    @cached_property
    def names(self) -> Sequence[str]:
        """Its columns."""
        with _damage(self.path):
            return tuple(pq.read_schema(self.path).names)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        with _damage(self.path):
            _check_rows(pq.read_metadata(self.path).num_rows, self.path.stat().st_size, self.path)
            table = pq.ParquetFile(self.path).read(list(columns))
            return _sound(table.select(list(columns)))


@dataclass(frozen=True)
class ArrowFile:
    """A table of `nsys export --type arrowdir`, or the one at `offset` in a file of `--type arrow`.

    Mapped, not read: what a damaged file says of its sizes is never allocated.
    """

    path: Path
    offset: int = 0

    @cached_property
    def names(self) -> Sequence[str]:
        """Its columns."""
        with _damage(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            return tuple(ipc.open_stream(file).schema.names)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        options = ipc.IpcReadOptions(included_fields=[self.names.index(name) for name in columns])
        batches: list[pa.RecordBatch] = []
        rows, size = 0, self.path.stat().st_size
        with _damage(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            reader = ipc.open_stream(file, options=options)
            for batch in reader:
                rows += batch.num_rows
                _check_rows(rows, size, self.path)
                batches.append(batch)
            return _sound(pa.Table.from_batches(batches, reader.schema))


def streams_of(path: Path) -> Mapping[str, ArrowFile]:
    """The tables of a file that holds one Arrow stream after another, each named in its schema."""
    streams: dict[str, ArrowFile] = {}
    size = path.stat().st_size
    with _damage(path), pa.memory_map(str(path)) as file:
        while (offset := file.tell()) < size:
            # No column is needed, only where the stream ends.
            reader = ipc.open_stream(file, options=ipc.IpcReadOptions(included_fields=[0]))
            name = (reader.schema.metadata or {}).get(_TABLE_NAME, b"").decode(errors="replace")
            for _ in reader:
                pass
            streams[name] = ArrowFile(path, offset)
            if file.tell() <= offset:
                break
    return streams


def _sound(table: pa.Table) -> pa.Table:
    """The table with texts as bytes, as nobody has checked that they are UTF-8, and nested columns as nulls.

    ArrowInvalid where its buffers do not hold what they say, which would be read beyond their ends.
    """
    columns = [_plain(column) for column in table.columns]
    plain = pa.table(columns, names=table.column_names)
    plain.validate(full=True)
    return plain


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    if pa.types.is_primitive(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    return pa.chunked_array([pa.nulls(len(column))])


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise XspError("the table's file is damaged or cut off", path=path, advice=_AGAIN) from error


def _check_rows(rows: int, size: int, path: Path) -> None:
    if rows > _SMALL_ROWS and rows > size * _ROWS_PER_BYTE:
        raise XspError(
            f"the table's file says that {size:,} bytes are {rows:,} rows, which no export is", path=path, advice=_AGAIN
        )


# Nsight's tables held as Arrow, each loaded by its columns when it is needed.
_NUMBERED = "eventId"  # where a table has it, it is the row's number in the SQLite form


class Stored(Protocol):
    """One table where it lies."""

    @property
    def names(self) -> Sequence[str]:
        """Its columns."""

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row: numbers, bytes or nulls, sound; XspError where they cannot be read."""


@dataclass
class Frames:
    """One export: its tables by name; what `Tables` promises, by rows counted from 1."""

    path: Path
    stored: Mapping[str, Stored]
    total_bytes: int
    unreadable_texts: int = field(default=0, init=False)

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it holds."""
        return frozenset(self.stored)

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where the export lacks it."""
        return frozenset(self.stored[table].names) if table in self.stored else frozenset()

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; 0 where the export lacks the table."""
        return self._rows(table, (), where).height

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table with its rowid; those that it lacks are null, a missing table is empty."""
        rows = self._rows(table, columns, where)
        selected = (_integers(rows[c]) if c in rows.columns else pl.lit(None, dtype=pl.Int64).alias(c) for c in columns)
        return with_sane_times(rows.select("rowid", *selected))

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column in order of rowid, bytes that are not UTF-8 replaced and counted; null where missing."""
        rows = self._rows(table, (column,), where)
        if column not in rows.columns:
            return pl.Series(column, [None] * rows.height, dtype=pl.String)
        texts, foreign = decode_texts(rows[column])
        self.unreadable_texts += foreign
        return texts

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers as Float64 in order of rowid; null where missing or no number."""
        rows = self._rows(table, (column,), where)
        if column not in rows.columns or not rows.schema[column].is_numeric():
            return pl.Series(column, [None] * rows.height, dtype=pl.Float64)
        return rows[column].cast(pl.Float64)

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns, which the table has, of these rows, values as they are stored, in order of rowid."""
        rows = self._rows(table, columns, None)
        return rows.filter(pl.col("rowid").is_in(list(rowids))).select(columns).rows()

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column, in order of rowid."""
        rows = self._rows(table, self.stored[table].names, None)
        return rows.filter(pl.col("rowid").is_in(list(rowids))).drop("rowid").rows()

    @cached_property
    def strings(self) -> Strings:
        """The table StringIds."""
        return strings_by_id(self.integers("StringIds", ["id"])["id"], self.texts("StringIds", "value"))

    def _rows(self, table: str, columns: Sequence[str], where: Among | None) -> pl.DataFrame:
        """The columns that the table has, with `rowid`, in its order."""
        if table not in self.stored:
            return pl.DataFrame(schema={"rowid": pl.Int64})
        stored = self.stored[table]
        extra = (_NUMBERED, *((where.column,) if where else ()))
        names = [name for name in stored.names if name in {*columns, *extra}]
        # The first column stands for the number of rows where none is selected.
        rows = _frame(stored.load(names or stored.names[:1]))
        rows = _with_row_ids(rows)
        if where is not None:
            inside = _integers(rows[where.column]).is_in(where.values) if where.column in rows.columns else False
            rows = rows.filter(inside)
        return rows.select("rowid", *(c for c in rows.columns if c in columns and c != "rowid"))


def _frame(table: pa.Table) -> pl.DataFrame:
    """The table in polars, column by column under names of our own, as names and metadata are the file's."""
    return pl.DataFrame([_series(name, table.column(index)) for index, name in enumerate(table.column_names)])


def _series(name: str, column: pa.ChunkedArray) -> pl.Series:
    values = pl.from_arrow(column)
    return values.rename(name) if isinstance(values, pl.Series) else pl.Series(name, [None] * len(column))


def _with_row_ids(rows: pl.DataFrame) -> pl.DataFrame:
    if _NUMBERED in rows.columns and rows[_NUMBERED].null_count() == 0:
        return rows.with_columns(_integers(rows[_NUMBERED]).alias("rowid")).sort("rowid", maintain_order=True)
    return rows.with_row_index("rowid", offset=1).with_columns(pl.col("rowid").cast(pl.Int64))


def _integers(values: pl.Series) -> pl.Series:
    """Integers as SQLite would hold them: unsigned numbers beyond 2^63 as negative ones, what is no number as null."""
    if values.dtype == pl.UInt64:
        return values.reinterpret(signed=True)
    if values.dtype.is_numeric() or values.dtype == pl.Boolean:
        return values.cast(pl.Int64, strict=False)
    if values.dtype == pl.Null:
        return values.cast(pl.Int64)
    texts, _ = decode_texts(values) if values.dtype in (pl.Binary, pl.String) else (values.cast(pl.String), 0)
    return texts.cast(pl.Int64, strict=False)


# Events of Nsight in JSON lines: which table an event belongs to and under which columns, and the tables of them.

_OF_CLASS: Mapping[int, str] = {
    **dict.fromkeys((0, 1, 13), "CUPTI_ACTIVITY_KIND_RUNTIME"),
    3: "PROFILER_OVERHEAD",
    **dict.fromkeys((27, 31, 32), "OSRT_API"),
    28: "CUDNN_EVENTS",
    29: "CUBLAS_EVENTS",
}
_CALL = {
    "startNs": "start",
    "endNs": "end",
    "correlationId": "correlationId",
    "eventClass": "eventClass",
    "globalTid": "globalTid",
    "name": "nameId",
    "returnValue": "returnValue",
}
_NVTX = {
    "Timestamp": "start",
    "EndTimestamp": "end",
    "Type": "eventType",
    "RangeId": "rangeId",
    "Category": "category",
    "GlobalTid": "globalTid",
    "EndGlobalTid": "endGlobalTid",
    "TextId": "textId",
    "DomainId": "domainId",
}
_WORK = {
    "startNs": "start",
    "endNs": "end",
    "deviceId": "deviceId",
    "contextId": "contextId",
    "greenContextId": "greenContextId",
    "streamId": "streamId",
    "correlationId": "correlationId",
    "globalPid": "globalPid",
}
_KERNEL = (
    "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphId", "graphNodeId",
)  # fmt: skip
_ACTIVITIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "kernel": ("CUPTI_ACTIVITY_KIND_KERNEL", {name: name for name in _KERNEL}),
    "memcpy": (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {"sizebytes": "bytes", "copyKind": "copyKind", "srcKind": "srcKind", "dstKind": "dstKind"},
    ),
    "memset": ("CUPTI_ACTIVITY_KIND_MEMSET", {"sizebytes": "bytes", "memKind": "memKind"}),
    "sync": ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {"syncType": "syncType"}),
    "graph": ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {"graphId": "graphId", "graphExecId": "graphExecId"}),
}
# Protocol buffers leave out numbers that are 0; SQLite has them, and null means "not known" to the reader.
_ZEROS = ("deviceId", "correlationId", "copyKind", "srcKind", "dstKind", "memKind", "eventClass", "domainId")
_SEVERITIES = {"Info": 1, "Warning": 2, "Error": 3}


def place_event(name: str, body: msgspec.Raw) -> tuple[str, dict[str, int | str | None]] | None:
    """The table and row of an event; None where no table here takes its kind. ValueError where it is none at all."""
    cells = msgspec.json.decode(body, type=dict[str, object])
    if name == "TraceProcessEvent":
        table = _OF_CLASS.get(_number(cells.get("eventClass")) or 0)
        return (table, _our_cells(cells, _CALL)) if table else None
    if name == "NvtxEvent":
        text = cells.get("Text")
        return "NVTX_EVENTS", {**_our_cells(cells, _NVTX), "text": text if isinstance(text, str) else None}
    if name == "CudaEvent":
        return _activity(cells)
    if name == "DiagnosticEvent":
        severity = _SEVERITIES.get(str(cells.get("Level")), 1)
        return "DIAGNOSTIC_EVENT", {"severity": severity, "text": str(cells.get("Text", ""))}
    return None


def _activity(cells: Mapping[str, object]) -> tuple[str, dict[str, int | str | None]] | None:
    for part, (table, columns) in _ACTIVITIES.items():
        details = cells.get(part)
        if isinstance(details, dict):
            return table, {**_our_cells(cells, _WORK), **_our_cells(details, columns)}
    return None


def _our_cells(cells: Mapping[str, object], columns: Mapping[str, str]) -> dict[str, int | str | None]:
    return {
        ours: _number(cells[theirs]) if theirs in cells else (0 if ours in _ZEROS else None)
        for theirs, ours in columns.items()
    }


def _number(value: object) -> int | None:
    """A number, which JSON has as text where it may need 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


# Nsight's events as JSON, one a line, put back into the tables that the other exports have.
_MAX_BITS = 63


@dataclass
class Rows:
    """One table's rows, column by column."""

    cells: dict[str, list[int | str | None]] = field(default_factory=dict)
    count: int = 0

    def add(self, row: Mapping[str, int | str | None]) -> None:
        """Appends a row; columns that it does not have are null."""
        for name in row.keys() - self.cells.keys():
            self.cells[name] = [None] * self.count
        for name, column in self.cells.items():
            column.append(row.get(name))
        self.count += 1

    @property
    def names(self) -> Sequence[str]:
        """Its columns."""
        return tuple(self.cells)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        return pa.table({name: _column(self.cells[name]) for name in columns})


def _column(cells: list[int | str | None]) -> pa.Array:
    if any(isinstance(cell, str) for cell in cells):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    return pa.array([_as_int64(cell) for cell in cells], pa.int64())


def _as_int64(cell: int | str | None) -> int | None:
    """A number as SQLite has it: unsigned numbers beyond 2^63 are negative, and what 64 bits cannot hold is unknown."""
    if not isinstance(cell, int) or not -(1 << _MAX_BITS) <= cell < 1 << (_MAX_BITS + 1):
        return None
    return cell - (1 << (_MAX_BITS + 1)) if cell >> _MAX_BITS > 0 else cell


@dataclass
class Collected(Frames):
    """An export read from events; `left_out` counts those of kinds that no table here takes."""

    left_out: Counter[str] = field(default_factory=Counter, init=False)


def read_json_lines(path: Path) -> Collected:
    """The tables of the file; XspError where a line is no JSON object, or the file ends within one."""
    tables: dict[str, Rows] = {}
    export = Collected(path, tables, path.stat().st_size)
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    all_lines = (line for piece in lines(path) for line in piece.split(b"\n"))
    for number, line in enumerate(all_lines, 1):
        if not line.strip():
            continue
        try:
            _take(decoder.decode(line), tables, export.left_out)
        except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
            raise XspError(
                f"line {number:,} is no event of Nsight's, or the file is cut off there",
                path=path,
                advice="Export the .nsys-rep file again",
            ) from error
    return export


def _take(line: Mapping[str, msgspec.Raw], tables: dict[str, Rows], left_out: Counter[str]) -> None:
    if "data" in line:
        _strings(line["data"], tables)
        return
    if "type" in line:  # --separate-strings
        if _text(line["type"]) == "String":
            row: dict[str, int | str | None] = {"id": int(_text(line["id"])), "value": _text(line["value"])}
            tables.setdefault("StringIds", Rows()).add(row)
        return
    for name, body in line.items():
        if name in ("Type", "Timestamp", "Value"):
            continue
        placed = place_event(name, body)
        if placed is None:
            left_out[name] += 1
        else:
            table, row = placed
            tables.setdefault(table, Rows()).add(row)


def _strings(data: msgspec.Raw, tables: dict[str, Rows]) -> None:
    """The list of interned strings; a string's index is its id. The list of threads is not needed."""
    entries = msgspec.json.decode(data, type=list[str | dict[str, msgspec.Raw]])
    texts = [text for text in entries if isinstance(text, str)]
    if len(texts) < len(entries):
        return
    for string_id, text in enumerate(texts):
        tables.setdefault("StringIds", Rows()).add({"id": string_id, "value": text})


def _text(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=str)
