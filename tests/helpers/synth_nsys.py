"""Small Nsight Systems SQLite files built from literals, of any schema, so that a test shows its whole input."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PROCESS", "SCHEMAS", "THREAD", "NsightFile", "Schema", "global_id"]

PROCESS = 100
THREAD = 101
_VIRTUAL_MACHINE = 1 << 48  # as every real file seen has it


@dataclass(frozen=True)
class Schema:
    """What sets one version of the export apart from the newest."""

    version: str
    product: str
    meta_table: str = "META_DATA_EXPORT"
    node_table: str = "CUDA_GRAPH_NODE_EVENTS"
    enums: bool = True
    lacks: tuple[str, ...] = ()  # columns that came later, of any table or of the one named


SCHEMAS: Mapping[str, Schema] = {
    "2.9": Schema(
        "2.9.1",
        "2022.2.1.31",
        meta_table="EXPORT_META_DATA",
        node_table="CUDA_GRAPH_EVENTS",
        enums=False,
        lacks=("greenContextId", "CUPTI_ACTIVITY_KIND_KERNEL.graphId", "binaryData", "copyCount"),
    ),
    "3.0": Schema(
        "3.0.0",
        "2022.4.2.50",
        meta_table="EXPORT_META_DATA",
        node_table="CUDA_GRAPH_EVENTS",
        lacks=("greenContextId", "CUPTI_ACTIVITY_KIND_KERNEL.graphId", "binaryData", "copyCount"),
    ),
    "3.7": Schema(
        "3.7.2",
        "2023.4.4.54",
        node_table="CUDA_GRAPH_EVENTS",
        lacks=("CUPTI_ACTIVITY_KIND_KERNEL.graphId", "binaryData", "copyCount"),
    ),
    "3.13": Schema("3.13.2", "2024.5.1.113", lacks=("CUPTI_ACTIVITY_KIND_KERNEL.graphId", "copyCount")),
    "3.25": Schema("3.25.0", "2026.2.1.210"),
}
"""By the first two parts of the schema's version."""

_WORK = ("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid")
_CALL = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId")
_LIBRARY = ("start", "end", "eventClass", "globalTid", "nameId")
_DIRECTIVE = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "eventKind")
_OPENACC = ("start", "end", "nameId", "globalTid", "eventKind", "lineNo", "srcFile", "funcName")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *_WORK, "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
        "localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId",
        "sharedMemoryLimitConfig", "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        *_WORK, "bytes", "copyKind", "deprecatedSrcId", "srcKind", "dstKind", "srcDeviceId", "srcContextId",
        "dstDeviceId", "dstContextId", "migrationCause", "graphNodeId", "virtualAddress", "copyCount",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_WORK, "value", "bytes", "graphNodeId", "memKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_WORK, "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALL,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (*_WORK, "syncType", "eventId"),
    "CUDNN_EVENTS": _LIBRARY,
    "CUBLAS_EVENTS": _LIBRARY,
    "CUDA_GRAPH_NODE_EVENTS": (*_LIBRARY, "graphNodeId", "originalGraphNodeId"),
    "CUDA_GRAPH_EVENTS": (*_LIBRARY, "graphNodeId", "originalGraphNodeId"),
    "NVTX_EVENTS": (
        "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
        "domainId", "uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue",
        "jsonTextId", "jsonText", "binaryData",
    ),
    "TARGET_INFO_GPU": (
        "id", "name", "totalMemory", "memoryBandwidth", "clockRate", "smCount", "cuDevice", "computeMajor",
        "computeMinor",
    ),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime", "localTime"),
    "ANALYSIS_DETAILS": ("globalVid", "duration", "startTime", "stopTime"),
    "DIAGNOSTIC_EVENT": ("timestamp", "timestampType", "source", "severity", "text", "globalPid"),
    "PROFILER_OVERHEAD": ("start", "end", "globalTid", "nameId", "returnValue"),
    "OSRT_API": ("start", "end", "eventClass", "globalTid", "nameId", "returnValue", "nestingLevel", "callchainId"),
    "MPI_COLLECTIVES_EVENTS": (
        "start", "end", "globalTid", "textId", "commHandle", "rootRank", "size", "recvSize", "requestHandle",
    ),
    "MPI_P2P_EVENTS": ("start", "end", "globalTid", "textId", "commHandle", "remoteRank", "tag", "size"),
    "MPI_START_WAIT_EVENTS": ("start", "end", "globalTid", "textId", "requestHandle"),
    "MPI_OTHER_EVENTS": ("start", "end", "globalTid", "textId"),
    "MPI_RANKS": ("globalTid", "rank"),
    "UCP_SUBMIT_EVENTS": ("start", "end", "globalTid", "textId", "bufferAddr", "packedSize", "tag"),
    "UCP_PROGRESS_EVENTS": ("start", "end", "globalTid", "textId", "bufferAddr", "tag"),
    "UCP_EVENTS": ("start", "end", "globalTid", "textId"),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
        "start", "globalPid", "address", "originalFaultPc", "CpuInstruction", "module", "unresolvedFaultPc",
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": (
        "start", "end", "globalPid", "deviceId", "address", "numberOfPageFaults", "faultAccessType",
    ),
    "NET_NIC_METRIC": ("start", "end", "globalId", "metricsListId", "metricsIdx", "value"),
    "SCHED_EVENTS": ("start", "cpu", "isSchedIn", "globalTid"),
    "OPENMP_EVENT_KIND_PARALLEL": (*_DIRECTIVE, "parallelId", "parentTaskId"),
    "OPENMP_EVENT_KIND_TASK": (*_DIRECTIVE, "parallelId", "taskId", "kind"),
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": (*_OPENACC, "numGangs", "kernelName"),
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER": _OPENACC,
    "GPU_METRICS": ("timestamp", "typeId", "metricId", "value"),
    "TARGET_INFO_GPU_METRICS": ("typeId", "sourceId", "typeName", "metricId", "metricName"),
    "GENERIC_EVENTS": ("rawTimestamp", "timestamp", "typeId", "data", "genericEventId"),
    "GENERIC_EVENT_TYPES": ("typeId", "sourceId", "data", "nameId"),
    "GENERIC_EVENT_TYPE_FIELDS": ("typeId", "fieldIdx", "fieldNameId"),
    "GENERIC_EVENT_DATA": ("genericEventId", "fieldIdx", "uintVal", "intVal", "floatVal", "doubleVal"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start", "globalPid", "deviceId", "contextId", "address", "pc", "bytes", "memKind", "memoryOperationType",
        "name", "correlationId",
    ),
    "META_DATA_CAPTURE": ("name", "value"),
    "META_DATA_EXPORT": ("name", "value"),
    "EXPORT_META_DATA": ("name", "value"),
    "ENUM_CUDA_MEMCPY_OPER": ("id", "name", "label"),
    "ENUM_CUDA_MEM_KIND": ("id", "name", "label"),
}  # fmt: skip
_TEXTS = ("text", "value", "name", "label", "jsonText", "utcTime", "localTime", "typeName", "metricName", "data")

_COPY_KINDS = (
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
    "Unified Host-to-Device", "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
_MEMORY_KINDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
_EVENT_TYPES = {"PushPop": 59, "StartEnd": 60, "NVTXT PushPop": 70, "NVTXT StartEnd": 71}


def global_id(process: int, thread: int = 0) -> int:
    """Nsight's serialised id of a thread, or with thread 0 of a process."""
    return _VIRTUAL_MACHINE | process << 24 | thread


class NsightFile:
    """Collects rows in the order of the calls; times are nanoseconds of the file's own clock, start first, then end.

    Tables exist only where something was put into them, as in real exports; `with_table` makes an empty one.
    """

    def __init__(self, schema: str = "3.7") -> None:
        self.schema = SCHEMAS[schema]
        self.rows: dict[str, list[dict[str, object]]] = {}
        self._strings: dict[str | bytes, int] = {}
        self._correlation = 0
        self.with_table("StringIds")
        self.add(self.schema.meta_table, name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
        self.add(self.schema.meta_table, name="EXPORT_PRODUCT_VERSION", value=self.schema.product)
        self.add(self.schema.meta_table, name="EXPORT_SCHEMA_VERSION", value=self.schema.version)
        if self.schema.enums:
            for table, labels in (("ENUM_CUDA_MEMCPY_OPER", _COPY_KINDS), ("ENUM_CUDA_MEM_KIND", _MEMORY_KINDS)):
                for number, label in enumerate(labels):
                    self.add(table, id=number, name=label, label=label)

    def with_table(self, table: str) -> None:
        """Makes the table exist, empty as it may be."""
        self.rows.setdefault(table, [])

    def add(self, table: str, **values: object) -> None:
        """Any row; columns that are not given are NULL."""
        unknown = set(values) - set(_COLUMNS[table])
        assert not unknown, f"{table} has no column {unknown}"
        self.rows.setdefault(table, []).append(values)

    def string(self, text: str | bytes) -> int:
        """The id of an interned string; bytes are stored as they are, UTF-8 or not."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def correlation(self) -> int:
        """A correlation id not handed out before."""
        self._correlation += 1
        return self._correlation

    def call(
        self,
        start: int,
        end: int,
        name: str = "cudaLaunchKernel_v7000",
        *,
        correlation: int | None = None,
        thread: int = THREAD,
        process: int = PROCESS,
    ) -> None:
        """A call of the CUDA runtime or driver, with a correlation id of its own unless one is given."""
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=global_id(process, thread),
            correlationId=self.correlation() if correlation is None else correlation,
            nameId=self.string(name),
            returnValue=0,
        )

    def kernel(
        self,
        start: int,
        end: int,
        name: str = "kernel",
        *,
        correlation: int = 0,
        process: int = PROCESS,
        device: int = 0,
        stream: int = 7,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        **more: object,
    ) -> None:
        """A kernel; `more` are columns of the table under Nsight's own names."""
        axes = {f"grid{axis}": size for axis, size in zip("XYZ", grid, strict=True)}
        axes |= {f"block{axis}": size for axis, size in zip("XYZ", block, strict=True)}
        shared = {"registersPerThread": 16, "staticSharedMemory": 0, "dynamicSharedMemory": 0}
        names = {"demangledName": self.string(name), "shortName": self.string(name)}
        activity = _activity(start, end, process, device, stream, correlation)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", **activity, **axes, **{**shared, **names, **more})

    def launch(
        self,
        call: tuple[int, int],
        work: tuple[int, int],
        name: str = "kernel",
        *,
        thread: int = THREAD,
        process: int = PROCESS,
        device: int = 0,
    ) -> int:
        """A call and the kernel it launched; their correlation id."""
        correlation = self.correlation()
        self.call(*call, correlation=correlation, thread=thread, process=process)
        self.kernel(*work, name, correlation=correlation, process=process, device=device)
        return correlation

    def memcpy(
        self,
        start: int,
        end: int,
        kind: int = 1,
        *,
        size: int = 1024,
        correlation: int = 0,
        process: int = PROCESS,
        memory: tuple[int, int] = (0, 2),
        device: int = 0,
        address: int | None = None,
    ) -> None:
        """A copy; `kind` and `memory` (source, destination) are CUPTI's codes; `address`: of a migration."""
        activity = _activity(start, end, process, device, 7, correlation)
        source, destination = memory
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **activity,
            bytes=size,
            copyKind=kind,
            srcKind=source,
            dstKind=destination,
            virtualAddress=address,
        )

    def memset(self, start: int, end: int, *, size: int = 64, correlation: int = 0, process: int = PROCESS) -> None:
        """A fill of device memory."""
        activity = _activity(start, end, process, 0, 7, correlation)
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", **activity, value=0, bytes=size, memKind=2)

    def graph_trace(self, start: int, end: int, *, graph: int, correlation: int = 0) -> None:
        """A graph's replay recorded as a whole."""
        activity = _activity(start, end, PROCESS, 0, 7, correlation)
        self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **activity, graphId=graph, graphExecId=graph)

    def graph_node(self, start: int, end: int, *, node: int, original: int = 0) -> None:
        """The making of a graph's node, in the table that this schema keeps nodes in."""
        self.add(
            self.schema.node_table,
            start=start,
            end=end,
            eventClass=0,
            globalTid=global_id(PROCESS, THREAD),
            nameId=self.string("cudaGraphAddKernelNode"),
            graphNodeId=node,
            originalGraphNodeId=original,
        )

    def wait(self, start: int, end: int, kind: int, *, stream: int = 7, correlation: int = 0) -> None:
        """A synchronisation as CUPTI reports it."""
        activity = _activity(start, end, PROCESS, 0, stream, correlation)
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **activity, syncType=kind)

    def library_call(self, start: int, end: int, name: str, table: str = "CUDNN_EVENTS") -> None:
        """A call into cuDNN or cuBLAS."""
        tid = global_id(PROCESS, THREAD)
        self.add(table, start=start, end=end, eventClass=28, globalTid=tid, nameId=self.string(name))

    def event(
        self,
        table: str,
        start: int,
        end: int,
        name: str,
        *,
        thread: int = THREAD,
        process: int = PROCESS,
        **more: object,
    ) -> None:
        """A row of a table of host calls: of MPI, UCX, OpenMP, OpenACC or the operating system."""
        text = "textId" if "textId" in _COLUMNS[table] else "nameId"
        tid = global_id(process, thread)
        self.add(table, start=start, end=end, globalTid=tid, **{text: self.string(name)}, **more)

    def range(
        self,
        start: int,
        end: int | None,
        text: str | bytes | None,
        *,
        style: str = "PushPop",
        thread: int = THREAD,
        process: int = PROCESS,
        domain: int | None = None,
        end_thread: int | None = None,
        registered: bool = False,
    ) -> None:
        """An NVTX range; `registered` keeps its text in StringIds."""
        where = {"textId": self.string(text)} if registered and text is not None else {"text": text}
        self.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=_EVENT_TYPES[style],
            globalTid=global_id(process, thread),
            endGlobalTid=None if end_thread is None else global_id(process, end_thread),
            domainId=domain or 0,
            **where,
        )

    def domain(self, number: int, name: str, *, process: int = PROCESS) -> None:
        """The making of an NVTX domain."""
        tid = global_id(process, THREAD)
        self.add("NVTX_EVENTS", start=0, eventType=75, text=name, globalTid=tid, domainId=number)

    def mark(self, start: int, text: str) -> None:
        """An NVTX mark."""
        self.add("NVTX_EVENTS", start=start, eventType=34, text=text, globalTid=global_id(PROCESS, THREAD), domainId=0)

    def gpu(
        self, number: int = 0, name: str = "NVIDIA Test GPU", *, ordinal: int | None = None, **more: object
    ) -> None:
        """A GPU: 40 multiprocessors of capability 7.5 at 1590 MHz unless `more` says otherwise."""
        usual: dict[str, object] = {
            "totalMemory": 16 << 30,
            "memoryBandwidth": 320064000000,
            "clockRate": 1590000000,
            "smCount": 40,
            "cuDevice": number if ordinal is None else ordinal,
            "computeMajor": 7,
            "computeMinor": 5,
        }
        self.add("TARGET_INFO_GPU", id=number, name=name, **{**usual, **more})

    def faults(self, start: int, address: int, count: int | None = None, *, instruction: str = "main") -> None:
        """Faults of unified memory: so many of a device, else one of the host."""
        where = {"start": start, "globalPid": global_id(PROCESS), "address": address}
        if count is None:
            host = {"CpuInstruction": self.string(instruction), "module": self.string("a.out")}
            self.add("CUDA_UM_CPU_PAGE_FAULT_EVENTS", **where, **host)
        else:
            device = {"end": start + 5, "deviceId": 0, "numberOfPageFaults": count, "faultAccessType": 1}
            self.add("CUDA_UM_GPU_PAGE_FAULT_EVENTS", **where, **device)

    def diagnostic(self, severity: int, text: str) -> None:
        """Something that the profiler said; severity 2 is a warning, 3 an error."""
        self.add("DIAGNOSTIC_EVENT", timestamp=-5, source=1, severity=severity, text=text, globalPid=global_id(PROCESS))

    def overhead(self, start: int, end: int, name: str = "CUDA profiling overhead", *, process: int = PROCESS) -> None:
        """A stretch in which the profiler held a thread up."""
        tid = global_id(process, THREAD)
        self.add("PROFILER_OVERHEAD", start=start, end=end, globalTid=tid, nameId=self.string(name), returnValue=0)

    def session(self, *, epoch_ns: int, duration_ns: int) -> None:
        """When the capture began, in Unix time, and how long it was."""
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=epoch_ns)
        self.add("ANALYSIS_DETAILS", duration=duration_ns, startTime=0, stopTime=duration_ns)

    def write(self, path: Path) -> Path:
        """Writes the file."""
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self.rows.items():
                texts = () if table == "GPU_METRICS" else _TEXTS
                columns = [c for c in _COLUMNS[table] if not {c, f"{table}.{c}"} & set(self.schema.lacks)]
                declared = ", ".join(f'"{c}" {"TEXT" if c in texts else "INTEGER"}' for c in columns)
                connection.execute(f'CREATE TABLE "{table}" ({declared})')
                # Through a blob, as only SQL makes a text of bytes that are not UTF-8.
                placeholders = ", ".join("CAST(? AS TEXT)" if c in texts else "?" for c in columns)
                values = [[row.get(c) for c in columns] for row in rows]
                connection.executemany(f'INSERT INTO "{table}" VALUES ({placeholders})', values)  # noqa: S608
            connection.commit()
        return path


def _activity(start: int, end: int, process: int, device: int, stream: int, correlation: int) -> dict[str, object]:
    return {
        "start": start,
        "end": end,
        "deviceId": device,
        "contextId": 1,
        "streamId": stream,
        "correlationId": correlation,
        "globalPid": global_id(process),
    }
