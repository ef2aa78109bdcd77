"""Which table an event of Nsight's JSON belongs to, and under which columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["place_event"]

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
