"""The rows of an Nsight SQLite file alone: `adbc` three tables as Arrow, `sqlite3` kernels row by row.

Ours: `xsp` kernels, `xsp-all` the three tables. What a way imports is not measured.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.programs.stopwatch import print_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_KERNEL = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
    "dynamicSharedMemory",
)  # fmt: skip
_COLUMNS = {
    _KERNELS: _KERNEL,
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId", "returnValue"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "text", "textId", "domainId"),
}
_ROWS_A_FETCH = 100_000


def _query(table: str) -> str:
    columns = ", ".join(f'"{column}"' for column in _COLUMNS[table])
    return f'SELECT {columns} FROM "{table}"'  # noqa: S608


def _adbc(path: Path) -> Callable[[], None]:
    from adbc_driver_sqlite import dbapi  # noqa: PLC0415 (of these ways one runs)

    def rows() -> None:
        with dbapi.connect(f"file:{path}?immutable=1") as connection, connection.cursor() as cursor:
            for table in _COLUMNS:
                cursor.execute(_query(table))
                print(table, cursor.fetch_arrow_table().num_rows)

    return rows


def _sqlite3(path: Path) -> Callable[[], None]:
    def rows() -> None:
        count = 0
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
            cursor = connection.execute(_query(_KERNELS))
            while rows_read := cursor.fetchmany(_ROWS_A_FETCH):
                count += len(rows_read)
        print(_KERNELS, count)

    return rows


def _xsp(path: Path, *tables: str) -> Callable[[], None]:
    from xsp_ingest.files.sqlite import Database, table_names  # noqa: PLC0415 (likewise)

    def rows() -> None:
        database = Database(path, table_names(path))
        for table in tables:
            numbers = [column for column in _COLUMNS[table] if column != "text"]
            print(table, database.integers(table, numbers).height)
            if len(numbers) < len(_COLUMNS[table]):
                database.texts(table, "text")

    return rows


_WAYS: Mapping[str, Callable[[Path], Callable[[], None]]] = {
    "adbc": _adbc,
    "sqlite3": _sqlite3,
    "xsp": lambda path: _xsp(path, _KERNELS),
    "xsp-all": lambda path: _xsp(path, *_COLUMNS),
}
_rows = _WAYS[sys.argv[1]](Path(sys.argv[2]))
with print_times("rows"):
    _rows()
