"""Small nvprof databases built from literals, a record a call, so that a test shows its whole input."""

from __future__ import annotations

import sqlite3
import struct
import weakref
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PROCESS", "THREAD", "NvprofFile"]

PROCESS, THREAD = 4242, 3_000_000_001  # the lower 32 bits of a thread's address
_PREFIX = "CUPTI_ACTIVITY_KIND_"
_WORK = "start end deviceId contextId streamId correlationId"
_CALL = "cbid start end processId threadId correlationId returnValue"
_SIZES = "gridX gridY gridZ blockX blockY blockZ"
_KERNEL = f"{_WORK} registersPerThread completed {_SIZES} staticSharedMemory dynamicSharedMemory gridId name"
_COLUMNS: Mapping[str, str] = {
    "KERNEL": _KERNEL,
    "CONCURRENT_KERNEL": _KERNEL,
    "MEMCPY": f"{_WORK} copyKind srcKind dstKind flags bytes runtimeCorrelationId",
    "MEMSET": f"{_WORK} value bytes memoryKind",
    "RUNTIME": _CALL,
    "DRIVER": _CALL,
    "MARKER": "flags timestamp id objectKind objectId name domain",
    "MARKER_DATA": "flags id payloadKind payload color category",
    "CONTEXT": "contextId deviceId computeApiKind nullStreamId",
    "OVERHEAD": "overheadKind objectKind objectId start end",
    "METRIC": "id value correlationId flags",
    "DEVICE": (
        "globalMemoryBandwidth globalMemorySize coreClockRate numMultiprocessors "
        "computeCapabilityMajor computeCapabilityMinor id name"
    ),
}


class NvprofFile:
    """Records in the order of the calls; times in ns. Values are stored as they are given, of any type."""

    def __init__(self, **without: tuple[str, ...]) -> None:
        """`without`: columns of tables that this version of nvprof does not have."""
        self.connection = sqlite3.connect(":memory:")
        weakref.finalize(self, self.connection.close)  # of files that are never written; Python 3.13 warns of them
        self._without = without
        self.sql("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL UNIQUE)")
        self.sql("CREATE TABLE Version (version INTEGER)")
        self.sql("INSERT INTO Version VALUES (9)")
        for table, columns in _COLUMNS.items():
            listed = ", ".join(f'"{c}" INT' for c in columns.split() if c not in without.get(table, ()))
            self.sql(f"CREATE TABLE {_PREFIX}{table} (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, {listed})")

    def sql(self, statement: str, *values: object) -> None:
        """Runs any statement."""
        self.connection.execute(statement, values)

    def text(self, value: object) -> int:
        """The number of a text in the table of texts."""
        self.sql("INSERT OR IGNORE INTO StringTable (value) VALUES (?)", value)
        ((number,),) = self.connection.execute("SELECT _id_ FROM StringTable WHERE value = ?", (value,))
        return int(number)

    def add(self, table: str, **values: object) -> None:
        """A record of any kind; what this version has no column for is dropped."""
        values = {name: value for name, value in values.items() if name not in self._without.get(table, ())}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" for _ in values)
        self.sql(f"INSERT INTO {_PREFIX}{table} ({names}) VALUES ({marks})", *values.values())  # noqa: S608

    def call(self, start: object, end: object, cbid: int, correlation: object, table: str = "RUNTIME") -> None:
        """A call of the runtime, or of the driver."""
        ids = {"processId": PROCESS, "threadId": THREAD, "correlationId": correlation}
        self.add(table, cbid=cbid, start=start, end=end, **ids)

    def kernel(self, start: object, end: object, correlation: object, name: str = "_Z4gemmPf", **more: object) -> None:
        """A kernel on device 0, stream 7."""
        self._work("CONCURRENT_KERNEL", start, end, correlation, name=self.text(name), **more)

    def copy(self, start: object, end: object, correlation: object, **more: object) -> None:
        """A copy of 4 KiB from pageable memory to the device."""
        values = {"copyKind": 1, "srcKind": 1, "dstKind": 3, "bytes": 4096, **more}
        self._work("MEMCPY", start, end, correlation, **values)

    def fill(self, start: object, end: object, correlation: object) -> None:
        """A fill of 256 bytes."""
        self._work("MEMSET", start, end, correlation, bytes=256, value=0, memoryKind=3)

    def _work(self, table: str, start: object, end: object, correlation: object, **more: object) -> None:
        ids = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
        self.add(table, **{"start": start, "end": end, **ids, **more})

    def range(self, number: int, start: int, end: int, name: str, domain: str | None = None) -> None:
        """A range of the user's: two markers of one number."""
        thread = struct.pack("<IQ", PROCESS, THREAD)
        ids = {"id": number, "objectKind": 2, "objectId": thread}
        of = 0 if domain is None else self.text(domain)
        self.add("MARKER", flags=2, timestamp=start, name=self.text(name), domain=of, **ids)
        self.add("MARKER", flags=4, timestamp=end, name=0, domain=of, **ids)

    def to_bytes(self) -> bytes:
        """The database's bytes."""
        self.connection.commit()
        return self.connection.serialize()

    def write(self, path: Path) -> Path:
        """Writes the database; gives the path."""
        with closing(self.connection):
            path.write_bytes(self.to_bytes())
        return path
