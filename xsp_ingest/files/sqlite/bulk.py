"""Columns of a large table from the file's pages, with what is rare in them from SQLite itself."""

# ruff: noqa: S608 (SQL cannot bind names of tables and columns; all that are put in are literals of this package)
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.machine.sqlite import CannotRead, Values, read

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_ingest.files.stored_columns import Among

__all__ = ["BYTES", "INTEGER", "NUMBER", "Take", "read_pages", "select_list"]


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
