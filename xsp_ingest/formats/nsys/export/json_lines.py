"""Events of Nsight in JSON lines: which table an event belongs to and under which columns, and the tables of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from xsp_ingest.files.content import lines
from xsp_ingest.formats.nsys.export.frames import Frames
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Collected", "read_json_lines"]

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
    """As SQLite has it: unsigned numbers beyond 2^63 are negative, and what 64 bits cannot hold is unknown."""
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
