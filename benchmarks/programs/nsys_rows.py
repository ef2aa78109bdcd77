"""The rows of an Nsight SQLite file alone: `adbc` three tables as Arrow, `sqlite3` kernels row by row, `xsp` ours."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from benchmarks.programs.stopwatch import measured

_KERNEL = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
    "dynamicSharedMemory",
)  # fmt: skip
_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId", "returnValue"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "text", "textId", "domainId"),
}
_ROWS_A_FETCH = 100_000


def _query(table: str) -> str:
    columns = ", ".join(f'"{column}"' for column in _COLUMNS[table])
    return f'SELECT {columns} FROM "{table}"'  # noqa: S608


def _adbc(path: Path) -> None:
    from adbc_driver_sqlite import dbapi  # noqa: PLC0415 (of two ways one runs)

    with dbapi.connect(f"file:{path}?immutable=1") as connection, connection.cursor() as cursor:
        for table in _COLUMNS:
            cursor.execute(_query(table))
            print(table, cursor.fetch_arrow_table().num_rows)


def _sqlite3(path: Path) -> None:
    rows = 0
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        cursor = connection.execute(_query("CUPTI_ACTIVITY_KIND_KERNEL"))
        while found := cursor.fetchmany(_ROWS_A_FETCH):
            rows += len(found)
    print("CUPTI_ACTIVITY_KIND_KERNEL", rows)


def _xsp(path: Path) -> None:
    from xsp_ingest.nsys_sqlite.database import Database, table_names  # noqa: PLC0415 (likewise)

    database = Database(path, table_names(path))
    print("CUPTI_ACTIVITY_KIND_KERNEL", database.integers("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL).height)


with measured("rows"):
    {"adbc": _adbc, "sqlite3": _sqlite3, "xsp": _xsp}[sys.argv[1]](Path(sys.argv[2]))
