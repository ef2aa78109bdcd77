"""CUPTI's activity records, one table a kind: the fields of each, and what each of them may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model import Finding

__all__ = ["END", "KINDS", "KNOWN_UNUSED", "TYPES", "Records"]

_TIMES = ("start", "end")
_WHERE = ("deviceId", "contextId", "streamId")
_GRAPH = ("graphId", "graphNodeId")
_SIZES = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
_SHARED = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_KERNEL = (*_TIMES, *_WHERE, "correlationId", "processId", "name", *_SIZES, *_SHARED, *_GRAPH)
_MEMCPY = (*_TIMES, *_WHERE, "correlationId", "processId", "bytes", "copyKind", "srcKind", "dstKind", *_GRAPH)
_CALL = (*_TIMES, "processId", "threadId", "correlationId", "cbid", "name")
END = "END"
"""The record that closes a dump of JSON lines."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "KERNEL": _KERNEL,
    "CONCURRENT_KERNEL": _KERNEL,
    "MEMCPY": _MEMCPY,
    "MEMCPY2": _MEMCPY,
    "MEMSET": (*_TIMES, *_WHERE, "correlationId", "processId", "bytes", "memoryKind", *_GRAPH),
    "GRAPH_TRACE": (*_TIMES, *_WHERE, "correlationId", "processId", "graphId"),
    "RUNTIME": _CALL,
    "DRIVER": _CALL,
    "SYNCHRONIZATION": (*_TIMES, "contextId", "streamId", "correlationId", "processId", "type"),
    "EXTERNAL_CORRELATION": ("externalKind", "externalId", "correlationId", "processId"),
    "FRAMEWORK_OPERATOR": (
        *_TIMES,
        *("processId", "threadId", "externalKind", "externalId", "name", "level"),
        *("sequenceNumber", "inputShapes", "inputTypes"),
    ),
    "MARKER": ("timestamp", "id", "flags", "processId", "threadId", "name", "domain"),
    "OVERHEAD": (*_TIMES, "overheadKind"),
    "DEVICE": (
        *("id", "name", "computeCapabilityMajor", "computeCapabilityMinor", "numMultiprocessors"),
        *("coreClockRate", "globalMemoryBandwidth", "globalMemorySize"),
    ),
    END: ("records", "dropped"),
}
"""What is read: kinds by CUPTI's name (CUPTI_ACTIVITY_KIND_ without its prefix) and two of the format's own."""
KNOWN_UNUSED = frozenset(
    {
        *("CONTEXT", "NAME", "STREAM", "MARKER_DATA", "ENVIRONMENT", "FUNCTION", "MODULE", "DEVICE_ATTRIBUTE"),
        *("UNIFIED_MEMORY_COUNTER", "CUDA_EVENT", "NVLINK", "PCIE", "MEMORY", "MEMORY2", "MEMORY_POOL", "JIT"),
        *("INTERNAL_LAUNCH_API", "DEVICE_GRAPH_TRACE", "GRAPH_HOST_NODE", "HOST_LAUNCH", "GREEN_CONTEXT"),
        *("OPENACC_DATA", "OPENACC_LAUNCH", "OPENACC_OTHER", "OPENMP", "PC_SAMPLING", "MEM_DECOMPRESS", "CDP_KERNEL"),
    }
)
"""Kinds of CUPTI that say nothing that XSP asks for; a dump may hold them."""
_TEXTS = frozenset({"name", "domain", "level", "inputShapes", "inputTypes"})
TYPES: Mapping[str, pl.DataType] = {
    "kind": pl.String(),
    **{
        field: pl.String() if field in _TEXTS else pl.Int64()
        for field in dict.fromkeys(field for fields in KINDS.values() for field in fields)
    },
}
"""Every field that is read, with its type: integers, and texts."""


# CUPTI's activity records, one table a kind.


@dataclass
class Records:
    """A file's records by kind, each with its index in the file as `row`; and what was odd."""

    process_id: int | None
    """The process that was profiled, for records that do not say theirs."""
    kinds: dict[str, pl.DataFrame] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def process(self) -> pl.Expr:
        """The process a record is of: its own, else the file's; as `processId`."""
        return pl.col("processId").fill_null(pl.lit(self.process_id, pl.Int64))

    def of(self, *kinds: str) -> pl.DataFrame:
        """The records of these kinds (which have the same fields), in the order of the file."""
        tables = [self.kinds[kind] for kind in kinds if kind in self.kinds]
        if not tables:
            return pl.DataFrame(schema={"row": pl.Int64, **{name: TYPES[name] for name in KINDS[kinds[0]]}})
        return pl.concat(tables).sort("row") if len(tables) > 1 else tables[0]
