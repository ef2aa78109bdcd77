"""A SQLite file, opened so that it cannot change: large tables from its pages, the rest by SQL."""

# ruff: noqa: S608 (SQL cannot bind names of tables and columns; all that are put in are literals of this package)

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl

from xsp_ingest.files.values import decode_texts, strings_by_id, with_sane_times
from xsp_ingest.machine.sqlite import CannotRead, Values, read
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.values import Among, Strings

__all__ = [
    "BYTES",
    "INTEGER",
    "MAGIC",
    "NUMBER",
    "Database",
    "Take",
    "check_header",
    "read_pages",
    "select_list",
    "table_names",
]


# Columns of a large table from the file's pages, with what is rare in them from SQLite itself.


@dataclass(frozen=True, slots=True)
class Take:
    """How a column is taken: in SQL, from pages, and as which type."""

    sql: str
    values: Values
    dtype: pl.DataType


# The affinity of the columns is INTEGER; the cast is for what was stored against it, and keeps 64 bits exact.
INTEGER = Take('CAST("{0}" AS INTEGER)', Values.INTEGER, pl.Int64())
# IIF, as a cast would make 0 of a text.
NUMBER = Take("IIF(typeof(\"{0}\") IN ('integer', 'real'), CAST(\"{0}\" AS REAL), NULL)", Values.NUMBER, pl.Float64())
BYTES = Take('CAST("{0}" AS BLOB)', Values.TEXT, pl.Binary())


def select_list(takes: Mapping[str, Take]) -> str:
    """What to select: the rowid and these columns."""
    return ", ".join(['rowid AS "rowid"', *(f'{take.sql.format(name)} AS "{name}"' for name, take in takes.items())])


def read_pages(
    path: Path, connection: sqlite3.Connection, table: str, takes: Mapping[str, Take], where: Among | None
) -> pl.DataFrame:
    """The rowid and the columns in order of rowid; CannotRead where SQLite should read the table."""
    kinds = {name: take.values for name, take in takes.items()}
    if where is not None and kinds.setdefault(where.column, Values.INTEGER) != Values.INTEGER:
        raise CannotRead
    result = read(path, connection, table, kinds)
    frame = result.frame
    rowids = frame["rowid"].gather(result.deferred).to_list()
    if rowids:
        frame = frame.filter(~pl.int_range(pl.len()).is_in(result.deferred))
    if where is not None:
        frame = frame.filter(pl.col(where.column).is_in(where.values))
    frame = frame.select("rowid", *takes)
    return pl.concat([frame, _query_rows(connection, table, takes, where, rowids)]).sort("rowid") if rowids else frame


def _query_rows(
    connection: sqlite3.Connection, table: str, takes: Mapping[str, Take], where: Among | None, rowids: list[int]
) -> pl.DataFrame:
    """These rows, as far as `where` takes them, by SQL."""
    among = f"rowid IN ({', '.join(map(str, rowids))})"
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}" WHERE {among}').fetchone()
    if count != len(rowids):  # in a damaged file a row may be found by its position and not by its number
        raise CannotRead
    clause = f"{among} AND {where.sql}" if where else among
    rows = connection.execute(f'SELECT {select_list(takes)} FROM "{table}" WHERE {clause}').fetchall()
    schema = {"rowid": pl.Int64(), **{name: take.dtype for name, take in takes.items()}}
    return pl.DataFrame(rows, schema=schema, orient="row")


# An Nsight SQLite file, opened so that it cannot change, read by the columns it happens to have.

MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_MIN_ROW_BYTES = 6  # where the cell is, its length, the rowid, and a record's header
_SMALL_BYTES = 4 << 20
_SIZES = struct.Struct(">16xH6xII60xI4x")  # page size, change counter, pages, and the counter at which pages held
_DAMAGED = "Copy the file again, or write it once more, of Nsight Systems with `nsys export --type sqlite`"


def check_header(path: Path) -> None:
    """XspError where the file is no SQLite database, or is shorter than its header says."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    if not head.startswith(MAGIC):
        zeroed = len(head) > 0 and not head.strip(b"\0")
        what = (
            "the SQLite header is zeroed, as an interrupted `nsys export` leaves it" if zeroed else "no SQLite database"
        )
        raise XspError(what, path=path, advice="Export the .nsys-rep file again with `nsys export --type sqlite`")
    size, changed, pages, valid_for = _SIZES.unpack_from(head.ljust(_HEADER_BYTES, b"\0"))
    page = 65536 if size == 1 else size
    if changed == valid_for and path.stat().st_size < page * pages:
        raise XspError("the SQLite database is truncated", path=path, advice=_DAMAGED)
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        if beside.is_file() and beside.stat().st_size:
            raise XspError(
                f"the SQLite database is being written, or its writer was interrupted ({beside.name} lies beside it)",
                path=path,
                advice="Wait for the export to end, or export again",
            )


def _uri(path: Path) -> str:
    # immutable: SQLite takes no lock and leaves no -wal or -shm file beside somebody's capture.
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def table_names(path: Path) -> frozenset[str]:
    """The plain tables of a SQLite file, no views (which would run); XspError where it is none or is damaged."""
    with _damage(path), closing(sqlite3.connect(_uri(path), uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        # A virtual table runs code as well.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        rows = connection.execute(query).fetchall()
    return frozenset(name for (name,) in rows)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    # UnicodeDecodeError: of SQLite's own message, which repeats the file. MemoryError: of sizes that are none.
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        what = error if str(error) else "it asks for more memory than there is"
        raise XspError(f"the SQLite database is damaged ({what})", path=path, advice=_DAMAGED) from error


def _rises(rowids: pl.Series) -> bool:
    return bool((rowids.slice(1) > rowids.head(max(len(rowids) - 1, 0))).all())


@dataclass
class Database:
    """One file; `unreadable_texts` counts the texts that were not UTF-8 and had bytes replaced.

    Of the tables in `conditions` only rows that meet them are there.
    """

    path: Path
    tables: frozenset[str]
    conditions: Mapping[str, str] = field(default_factory=dict)
    unreadable_texts: int = field(default=0, init=False)

    @property
    def total_bytes(self) -> int:
        """Its size on disk."""
        return self.path.stat().st_size

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where the file lacks it."""
        if table not in self.tables:
            return frozenset()
        return frozenset(str(name) for (name,) in self._plain(f"SELECT name FROM pragma_table_info('{table}')"))

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns, which the table has, of these rows, values as they are stored, in order of rowid.

        XspError where a row is not found by its number, which in a damaged file may be.
        """
        names = ", ".join(f'"{column}"' for column in columns)
        out: list[tuple[object, ...]] = []
        at_once = limits().fetched_rows
        for first in range(0, len(rowids), at_once):
            chosen = ", ".join(str(int(i)) for i in sorted(rowids)[first : first + at_once])
            out += self._plain(f'SELECT {names} FROM "{table}" WHERE rowid IN ({chosen}) ORDER BY rowid')
        if len(out) != len(rowids):
            what = f"rows of {table} are not found by their numbers"
            raise XspError(f"the SQLite database is damaged ({what})", path=self.path, advice=_DAMAGED)
        return out

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column, values as they are stored, in order of rowid; for few rows."""
        chosen = ", ".join(str(int(i)) for i in rowids)
        return self._plain(f'SELECT * FROM "{table}" WHERE rowid IN ({chosen}) ORDER BY rowid')

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; 0 where the file lacks the table."""
        if table not in self.tables:
            return 0
        ((count,),) = self._plain(f'SELECT count(*) FROM "{table}" {self._clause(table, where)}')
        return int(str(count))

    def _plain(self, query: str) -> list[tuple[object, ...]]:
        with _damage(self.path), closing(sqlite3.connect(_uri(self.path), uri=True)) as connection:
            connection.text_factory = self._decode
            return connection.execute(query).fetchall()

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table with its rowid; those that the file lacks are null, a missing table is empty."""
        present = [c for c in columns if c in self.columns(table)]
        absent = {c: pl.lit(None, dtype=pl.Int64).alias(c) for c in columns if c not in present}
        if table not in self.tables:
            return pl.DataFrame(schema=dict.fromkeys(("rowid", *columns), pl.Int64))
        selected = self._select(table, dict.fromkeys(present, INTEGER), where)
        rows = selected.select(absent.get(c, pl.col(c).cast(pl.Int64)) for c in ("rowid", *columns))
        return with_sane_times(rows)

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column in order of rowid, bytes that are not UTF-8 replaced and counted; null where missing."""
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table, where), dtype=pl.String)
        if self._is_utf16:  # of which only SQLite makes UTF-8; a cast to bytes would leave it as it is
            query = f'SELECT CAST("{column}" AS TEXT) FROM "{table}" {self._clause(table, where)} ORDER BY rowid'
            return pl.Series(column, [text for (text,) in self._plain(query)], dtype=pl.String)
        return self._decode_column(self._select(table, {column: BYTES}, where)[column])

    @cached_property
    def _is_utf16(self) -> bool:
        ((encoding,),) = self._plain("PRAGMA encoding")
        return str(encoding).startswith("UTF-16")

    @cached_property
    def strings(self) -> Strings:
        """The table StringIds."""
        return strings_by_id(self.integers("StringIds", ["id"])["id"], self.texts("StringIds", "value"))

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers as Float64 in order of rowid; null where missing or no number."""
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table, where), dtype=pl.Float64)
        return self._select(table, {column: NUMBER}, where)[column].cast(pl.Float64)

    def _select(self, table: str, takes: Mapping[str, Take], where: Among | None = None) -> pl.DataFrame:
        """The rowid and these columns in order of rowid."""
        if not self.conditions.get(table):
            with (
                suppress(CannotRead, sqlite3.Error, UnicodeDecodeError, OSError),
                closing(sqlite3.connect(_uri(self.path), uri=True)) as connection,
            ):
                return read_pages(self.path, connection, table, takes, where)
        schema = {"rowid": pl.Int64(), **{name: take.dtype for name, take in takes.items()}}
        query = f'SELECT {select_list(takes)} FROM "{table}" {self._clause(table, where)} ORDER BY rowid'
        rows = self._bulk(query, schema, self._row_bound(table))
        if not _rises(rows["rowid"]):  # SQLite goes along the pages, and overlooks cells that lie on each other
            what = f"rows of {table} are there twice, or out of order"
            raise XspError(f"the SQLite database is damaged ({what})", path=self.path, advice=_DAMAGED)
        return rows

    def _row_bound(self, table: str) -> int:
        """How many rows the table has at most; of a small file told by its size, as to count them takes a while."""
        bound = self.total_bytes // _MIN_ROW_BYTES
        return bound if self.total_bytes < _SMALL_BYTES else min(bound, self.count(table))

    def _bulk(self, query: str, schema: Mapping[str, pl.DataType], rows: int) -> pl.DataFrame:
        with _damage(self.path):
            if find_spec("adbc_driver_sqlite") is None:
                return self._bulk_plain(query, schema)
            import adbc_driver_manager  # noqa: PLC0415 (an extra)

            try:
                return self._bulk_arrow(query, rows)
            except (OSError, adbc_driver_manager.Error):
                # The driver met a value of another type than it had taken the column for, or damage, which SQLite
                # itself then names.
                return self._bulk_plain(query, schema)

    def _bulk_arrow(self, query: str, rows: int) -> pl.DataFrame:
        # Not by way of `dbapi`, which imports pandas. One batch for the whole table, as the driver takes column
        # types from the first batch alone; of no more rows than there are, as it takes the room for all of them first.
        import adbc_driver_manager  # noqa: PLC0415
        import adbc_driver_sqlite  # noqa: PLC0415

        with (
            adbc_driver_sqlite.connect(_uri(self.path)) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(max(rows, 1))})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            return pl.DataFrame(stream)

    def _bulk_plain(self, query: str, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        parts = [pl.DataFrame(schema=schema)]
        with closing(sqlite3.connect(_uri(self.path), uri=True)) as connection:
            cursor, at_once = connection.execute(query), limits().fetched_rows
            while rows := cursor.fetchmany(at_once):
                columns = zip(schema.items(), zip(*rows, strict=True), strict=True)
                parts.append(pl.DataFrame([pl.Series(name, values, dtype) for (name, dtype), values in columns]))
        return pl.concat(parts)

    def _decode_column(self, raw: pl.Series) -> pl.Series:
        texts, foreign = decode_texts(raw)
        self.unreadable_texts += foreign
        return texts

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.unreadable_texts += 1
            return raw.decode(errors="replace")

    def aggregate(self, what: Sequence[str], table: str, condition: str) -> tuple[object, ...]:
        """Numbers over the rows of a table that meet a condition of SQL ("": all)."""
        clause = f" WHERE {condition}" if condition else ""
        (values,) = self._plain(f'SELECT {", ".join(what)} FROM "{table}"{clause}')
        return values

    def _clause(self, table: str, where: Among | None) -> str:
        both = [f"({each})" for each in (self.conditions.get(table, ""), where.sql if where else "") if each]
        return f"WHERE {' AND '.join(both)}" if both else ""
