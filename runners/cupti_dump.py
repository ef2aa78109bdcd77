"""Writes CUPTI activity records into a dump as XSP reads it (docs/cupti-dump.md): JSON lines, then Parquet if it can.

While records come in they are lines of JSON, so that a program that is stopped leaves all that it recorded.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["FIELDS", "DumpWriter", "callback_names", "field_of", "record_of"]

_TIMES = ("start", "end")
_LOCATION = ("deviceId", "contextId", "streamId", "correlationId")
_GRAPH = ("graphId", "graphNodeId")
_SIZES = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
_SHARED = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_COPY = (*_TIMES, *_LOCATION, "bytes", "copyKind", "srcKind", "dstKind", *_GRAPH)
_CALL = (*_TIMES, "processId", "threadId", "correlationId", "cbid")

FIELDS: Mapping[str, tuple[str, ...]] = {
    "CONCURRENT_KERNEL": (*_TIMES, *_LOCATION, "name", *_SIZES, *_SHARED, *_GRAPH),
    "MEMCPY": _COPY,
    "MEMCPY2": _COPY,
    "MEMSET": (*_TIMES, *_LOCATION, "bytes", "memoryKind", *_GRAPH),
    "GRAPH_TRACE": (*_TIMES, *_LOCATION, "graphId"),
    "RUNTIME": _CALL,
    "DRIVER": _CALL,
    "SYNCHRONIZATION": (*_TIMES, "contextId", "streamId", "correlationId", "type"),
    "EXTERNAL_CORRELATION": ("externalKind", "externalId", "correlationId"),
    "OVERHEAD": (*_TIMES, "overheadKind"),
    "DEVICE": (
        *("id", "name", "computeCapabilityMajor", "computeCapabilityMinor", "numMultiprocessors"),
        *("coreClockRate", "globalMemoryBandwidth", "globalMemorySize"),
    ),
}
"""What is written of a record of each kind, by the names of CUPTI's structures."""

_OPERATOR = (*_TIMES, "processId", "threadId", "name", "level", "externalKind", "externalId")
_TEXTS = frozenset({"kind", "name", "level"})
_KEY = b"xsp cupti dump"
_CAPITAL = re.compile(r"(?<!^)([A-Z])")
_ROWS_AT_ONCE = 50_000
_LINES_AT_ONCE = 1_000
_BUFFER_BYTES = 1 << 20  # more than so many lines take


def field_of(name: str) -> str:
    """What cupti-python calls the field: `correlationId` is `correlation_id` there."""
    return _CAPITAL.sub(r"_\1", name).lower()


_ATTRIBUTES = {kind: [(name, field_of(name)) for name in names] for kind, names in FIELDS.items()}


def record_of(kind: str, activity: object) -> dict[str, Any]:
    """The record of an activity object of cupti-python; fields that its version does not have are left out."""
    record: dict[str, Any] = {"kind": kind}
    for name, attribute in _ATTRIBUTES[kind]:
        value = getattr(activity, attribute, None)
        if value is not None:
            record[name] = value if isinstance(value, str) else int(value)
    return record


class DumpWriter:
    """A dump under way; RunnerError where it cannot be written."""

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        """Begins the dump `path` (`.jsonl`)."""
        self.path = path
        self.count = 0
        self._header = {"format": _KEY.decode(), "version": 1, **header}
        self._waiting: list[bytes] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise RunnerError(f"the run cannot be written to {path.parent}: {error.strerror}") from error
        self._put(self._header)
        self.flush()

    def add(self, record: Mapping[str, object]) -> None:
        """Appends a record."""
        self._put(record)
        self.count += 1

    def _put(self, line: Mapping[str, object]) -> None:
        self._waiting.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        if len(self._waiting) >= _LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Writes what waits, whole lines at once, so that a process that is killed leaves no half of one."""
        self._file.write(b"".join(self._waiting))
        self._file.flush()
        self._waiting.clear()

    def give_up(self) -> None:
        """Leaves the dump as it is."""
        with suppress(OSError):
            self._file.close()

    def close(self, *, dropped: int) -> Path:
        """Ends the dump; the file that holds it in the end, which is Parquet where pyarrow is installed."""
        try:
            self._put({"kind": "END", "records": self.count, "dropped": dropped})
            self.flush()
            self._file.close()
            return self._as_parquet({**self._header, "dropped": dropped})
        except OSError as error:
            raise RunnerError(f"the run cannot be written to {self.path.parent}: {error.strerror}") from error

    def _as_parquet(self, header: Mapping[str, object]) -> Path:
        try:
            import pyarrow as pa  # noqa: PLC0415 (installed on some machines only)
            import pyarrow.parquet as pq  # noqa: PLC0415
        except ImportError:
            return self.path
        names = dict.fromkeys(name for fields in (("kind",), *FIELDS.values(), _OPERATOR) for name in fields)
        schema = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in names])
        schema = schema.with_metadata({_KEY: json.dumps(header).encode()})
        path, unfinished = self.path.with_suffix(".parquet"), self.path.with_suffix(".parquet.part")
        try:
            with pq.ParquetWriter(unfinished, schema, compression="zstd") as file:
                for rows in self._read():
                    file.write_table(pa.Table.from_pylist(rows, schema=schema))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        self.path.unlink()
        return path

    def _read(self) -> Iterator[list[dict[str, Any]]]:
        with self.path.open(encoding="utf-8") as lines:
            next(lines)
            while rows := [json.loads(line) for line in islice(lines, _ROWS_AT_ONCE)]:
                yield [row for row in rows if row["kind"] != "END"]


def callback_names(name_of: Callable[[int, int], object], domain: int) -> Callable[[int], str | None]:
    """Names of a domain's callbacks by their numbers, each asked for once; None for one that CUPTI cannot name."""
    names: dict[int, str | None] = {}

    def name(cbid: int) -> str | None:
        if cbid not in names:
            names[cbid] = None
            with suppress(Exception):  # a number that this CUPTI does not know is no reason to lose the record
                names[cbid] = str(name_of(domain, cbid))
        return names[cbid]

    return name
