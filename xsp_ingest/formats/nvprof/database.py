"""An nvprof database as CUPTI's records by kind, and from these the staging tables, on the path of CUPTI dumps."""

# ruff: noqa: S608 (SQL cannot bind names of tables and columns; all that are put in are literals of this package)

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.sqlite import Database, check_header, table_names
from xsp_ingest.files.values import strings_by_id
from xsp_ingest.formats.nvprof.tables import PREFIX, STRINGS, is_nvprof
from xsp_ingest.staging import cupti
from xsp_ingest.staging.cupti import KINDS, Records, devices
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options

__all__ = ["DRIVER_CALLS", "RUNTIME_CALLS", "read_database"]

# Names of CUDA's calls by the callback ids that CUPTI numbers them with; the databases hold only the ids.


def _names_by_number(text: str) -> Mapping[int, str]:
    """From tokens of which a number says what the next name has, and each further name has one more."""
    names: dict[int, str] = {}
    number = 0
    for token in text.split():
        if token.isdecimal():
            number = int(token)
        else:
            names[number] = token
            number += 1
    return names


RUNTIME_CALLS = _names_by_number(
    """
    1 cudaDriverGetVersion cudaRuntimeGetVersion cudaGetDeviceCount cudaGetDeviceProperties cudaChooseDevice
    cudaGetChannelDesc cudaCreateChannelDesc cudaConfigureCall cudaSetupArgument cudaGetLastError
    cudaPeekAtLastError cudaGetErrorString cudaLaunch cudaFuncSetCacheConfig cudaFuncGetAttributes cudaSetDevice
    cudaGetDevice cudaSetValidDevices cudaSetDeviceFlags cudaMalloc cudaMallocPitch cudaFree cudaMallocArray
    cudaFreeArray cudaMallocHost cudaFreeHost cudaHostAlloc cudaHostGetDevicePointer cudaHostGetFlags
    cudaMemGetInfo cudaMemcpy cudaMemcpy2D cudaMemcpyToArray cudaMemcpy2DToArray cudaMemcpyFromArray
    cudaMemcpy2DFromArray cudaMemcpyArrayToArray cudaMemcpy2DArrayToArray cudaMemcpyToSymbol
    cudaMemcpyFromSymbol cudaMemcpyAsync cudaMemcpyToArrayAsync cudaMemcpyFromArrayAsync cudaMemcpy2DAsync
    cudaMemcpy2DToArrayAsync cudaMemcpy2DFromArrayAsync cudaMemcpyToSymbolAsync cudaMemcpyFromSymbolAsync
    cudaMemset cudaMemset2D cudaMemsetAsync cudaMemset2DAsync cudaGetSymbolAddress cudaGetSymbolSize 123
    cudaThreadExit cudaSetDoubleForDevice cudaSetDoubleForHost cudaThreadSynchronize cudaThreadGetLimit
    cudaThreadSetLimit cudaStreamCreate cudaStreamDestroy cudaStreamSynchronize cudaStreamQuery cudaEventCreate
    cudaEventCreateWithFlags cudaEventRecord cudaEventDestroy cudaEventSynchronize cudaEventQuery
    cudaEventElapsedTime cudaMalloc3D cudaMalloc3DArray cudaMemset3D cudaMemset3DAsync cudaMemcpy3D
    cudaMemcpy3DAsync cudaThreadSetCacheConfig cudaStreamWaitEvent 150 cudaThreadGetCacheConfig
    cudaPointerGetAttributes cudaHostRegister cudaHostUnregister cudaDeviceCanAccessPeer
    cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess cudaPeerRegister cudaPeerUnregister
    cudaPeerGetDevicePointer cudaMemcpyPeer cudaMemcpyPeerAsync cudaMemcpy3DPeer cudaMemcpy3DPeerAsync
    cudaDeviceReset cudaDeviceSynchronize cudaDeviceGetLimit cudaDeviceSetLimit cudaDeviceGetCacheConfig
    cudaDeviceSetCacheConfig cudaProfilerInitialize cudaProfilerStart cudaProfilerStop cudaDeviceGetByPCIBusId
    cudaDeviceGetPCIBusId 181 cudaArrayGetInfo cudaFuncSetSharedMemConfig cudaDeviceGetSharedMemConfig
    cudaDeviceSetSharedMemConfig 197 cudaStreamAddCallback cudaStreamCreateWithFlags 200 cudaDeviceGetAttribute
    cudaStreamDestroy cudaStreamCreateWithPriority cudaStreamGetPriority cudaStreamGetFlags
    cudaDeviceGetStreamPriorityRange cudaMallocManaged cudaOccupancyMaxActiveBlocksPerMultiprocessor
    cudaStreamAttachMemAsync cudaGetErrorName cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaLaunchKernel
    cudaGetDeviceFlags cudaLaunch_ptsz cudaLaunchKernel_ptsz 225 cudaMemcpyAsync_ptsz
    cudaMemcpyToArrayAsync_ptsz cudaMemcpyFromArrayAsync_ptsz cudaMemcpy2DAsync_ptsz
    cudaMemcpy2DToArrayAsync_ptsz cudaMemcpy2DFromArrayAsync_ptsz cudaMemcpyToSymbolAsync_ptsz
    cudaMemcpyFromSymbolAsync_ptsz 235 cudaMemsetAsync_ptsz cudaMemset2DAsync_ptsz cudaStreamGetPriority_ptsz
    cudaStreamGetFlags_ptsz cudaStreamSynchronize_ptsz cudaStreamQuery_ptsz cudaStreamAttachMemAsync_ptsz
    cudaEventRecord_ptsz 244 cudaMemset3DAsync_ptsz 246 cudaMemcpy3DAsync_ptsz cudaStreamWaitEvent_ptsz
    cudaStreamAddCallback_ptsz 250 cudaMemcpy3DPeerAsync_ptsz
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaMemPrefetchAsync cudaMemPrefetchAsync_ptsz
    cudaMemAdvise cudaDeviceGetP2PAttribute 266 cudaMemRangeGetAttribute cudaMemRangeGetAttributes 269
    cudaLaunchCooperativeKernel cudaLaunchCooperativeKernel_ptsz 272 cudaLaunchCooperativeKernelMultiDevice
    cudaFuncSetAttribute 284 cudaLaunchHostFunc cudaLaunchHostFunc_ptsz cudaGraphCreate 289
    cudaGraphAddKernelNode cudaGraphAddMemcpyNode 293 cudaGraphAddMemsetNode 296 cudaGraphAddHostNode 298
    cudaGraphAddChildGraphNode 300 cudaGraphAddEmptyNode cudaGraphClone cudaGraphNodeFindInClone 304
    cudaGraphGetRootNodes 307 cudaGraphAddDependencies cudaGraphRemoveDependencies cudaGraphDestroyNode
    cudaGraphInstantiate cudaGraphLaunch cudaGraphLaunch_ptsz cudaGraphExecDestroy cudaGraphDestroy
    cudaStreamBeginCapture cudaStreamBeginCapture_ptsz cudaStreamIsCapturing cudaStreamIsCapturing_ptsz
    cudaStreamEndCapture cudaStreamEndCapture_ptsz 322 cudaGraphGetNodes cudaGraphGetEdges
    cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_ptsz 327 cudaThreadExchangeStreamCaptureMode 329
    cudaOccupancyAvailableDynamicSMemPerBlock cudaStreamSetFlags cudaStreamSetFlags_ptsz 335 cudaGraphExecUpdate
    cudaGetFuncBySymbol cudaCtxResetPersistingL2Cache cudaGraphKernelNodeCopyAttributes 341
    cudaStreamCopyAttributes 343 cudaStreamGetAttribute cudaStreamGetAttribute_ptsz cudaStreamSetAttribute
    cudaStreamSetAttribute_ptsz 348 cudaGraphUpload cudaGraphUpload_ptsz cudaGraphAddMemcpyNodeToSymbol
    cudaGraphAddMemcpyNodeFromSymbol cudaGraphAddMemcpyNode1D 362 cudaGraphAddEventRecordNode 365
    cudaGraphAddEventWaitNode 370 cudaEventRecordWithFlags cudaEventRecordWithFlags_ptsz
    cudaDeviceGetDefaultMemPool cudaMallocAsync cudaMallocAsync_ptsz cudaFreeAsync cudaFreeAsync_ptsz
    cudaMemPoolTrimTo cudaMemPoolSetAttribute cudaMemPoolGetAttribute cudaMemPoolSetAccess cudaArrayGetPlane
    cudaMemPoolGetAccess cudaMemPoolCreate cudaMemPoolDestroy cudaDeviceSetMemPool cudaDeviceGetMemPool
    cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer
    cudaMemPoolImportPointer cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz 405
    cudaDeviceFlushGPUDirectRDMAWrites cudaGetDriverEntryPoint cudaGetDriverEntryPoint_ptsz
    cudaGraphDebugDotPrint cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v2_ptsz
    cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_ptsz cudaUserObjectCreate
    cudaUserObjectRetain cudaUserObjectRelease cudaGraphRetainUserObject cudaGraphReleaseUserObject
    cudaGraphInstantiateWithFlags cudaGraphAddMemAllocNode 421 cudaGraphAddMemFreeNode 428
    cudaArrayGetMemoryRequirements 430 cudaLaunchKernelExC cudaLaunchKernelExC_ptsz
    """
)
"""The runtime's calls, without the version that CUPTI appends; those of graphics and textures are left out."""
DRIVER_CALLS = _names_by_number(
    """
    1 cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceComputeCapability
    cuDeviceTotalMem cuDeviceGetProperties cuDeviceGetAttribute cuCtxCreate cuCtxDestroy cuCtxAttach cuCtxDetach
    cuCtxPushCurrent cuCtxPopCurrent cuCtxGetDevice cuCtxSynchronize cuModuleLoad cuModuleLoadData
    cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction cuModuleGetGlobal 27
    cuMemGetInfo 29 cuMemAlloc 31 cuMemAllocPitch 33 cuMemFree 35 cuMemGetAddressRange 37 cuMemAllocHost
    cuMemFreeHost cuMemHostAlloc cuMemHostGetDevicePointer 42 cuMemHostGetFlags cuMemcpyHtoD 45 cuMemcpyDtoH 47
    cuMemcpyDtoD 49 cuMemcpyDtoA 51 cuMemcpyAtoD 53 cuMemcpyHtoA cuMemcpyAtoH cuMemcpyAtoA cuMemcpy2D
    cuMemcpy2DUnaligned cuMemcpy3D 60 cuMemcpyHtoDAsync 62 cuMemcpyDtoHAsync 64 cuMemcpyDtoDAsync 66
    cuMemcpyHtoAAsync cuMemcpyAtoHAsync cuMemcpy2DAsync cuMemcpy3DAsync 71 cuMemsetD8 73 cuMemsetD16 75
    cuMemsetD32 77 cuMemsetD2D8 79 cuMemsetD2D16 81 cuMemsetD2D32 83 cuFuncSetBlockShape cuFuncSetSharedSize
    cuFuncGetAttribute cuFuncSetCacheConfig cuArrayCreate cuArrayGetDescriptor cuArrayDestroy cuArray3DCreate
    cuArray3DGetDescriptor 115 cuLaunch cuLaunchGrid cuLaunchGridAsync cuEventCreate cuEventRecord cuEventQuery
    cuEventSynchronize cuEventDestroy cuEventElapsedTime cuStreamCreate cuStreamQuery cuStreamSynchronize
    cuStreamDestroy 135 cuGetExportTable cuCtxSetLimit cuCtxGetLimit 216 cuMemsetD8Async 218 cuMemsetD16Async
    220 cuMemsetD32Async 222 cuMemsetD2D8Async 224 cuMemsetD2D16Async 226 cuMemsetD2D32Async 235 cuCtxCreate_v2
    241 cuModuleGetGlobal_v2 cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2
    cuMemGetAddressRange_v2 cuMemHostGetDevicePointer_v2 cuMemcpy_v2 cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2
    cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2 259 cuDeviceTotalMem_v2 271 cuMemHostAlloc_v2
    cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuMemcpyHtoD_v2
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2
    cuMemcpyAtoH_v2 cuMemcpyAtoHAsync_v2 cuMemcpyAtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2
    cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3D_v2 cuMemcpy3DAsync_v2 cuMemcpyHtoA_v2
    cuMemcpyHtoAAsync_v2 cuMemAllocHost_v2 cuStreamWaitEvent cuCtxGetApiVersion 299 cuCtxGetCacheConfig
    cuCtxSetCacheConfig cuMemHostRegister cuMemHostUnregister cuCtxSetCurrent cuCtxGetCurrent cuMemcpy
    cuMemcpyAsync cuLaunchKernel cuProfilerStart cuProfilerStop cuPointerGetAttribute cuProfilerInitialize
    cuDeviceCanAccessPeer cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuMemPeerRegister cuMemPeerUnregister
    cuMemPeerGetDevicePointer cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync cuCtxDestroy_v2
    cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuEventDestroy_v2 cuStreamDestroy_v2 331 cuDeviceGetByPCIBusId
    cuDeviceGetPCIBusId 336 cuCtxSetSharedMemConfig cuCtxGetSharedMemConfig cuFuncSetSharedMemConfig 346
    cuStreamAddCallback 362 cuLinkCreate cuLinkAddData cuLinkAddFile cuLinkComplete cuLinkDestroy
    cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags cuCtxGetStreamPriorityRange
    cuMemAllocManaged cuGetErrorString cuGetErrorName cuOccupancyMaxActiveBlocksPerMultiprocessor 376
    cuBinaryFree cuStreamAttachMemAsync cuPointerSetAttribute cuMemHostRegister_v2 381 cuLinkCreate_v2
    cuLinkAddData_v2 cuLinkAddFile_v2 cuOccupancyMaxPotentialBlockSize 386 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxReset 391 cuCtxGetFlags
    cuDevicePrimaryCtxGetState 418 cuMemcpyAsync_ptsz cuMemcpyHtoAAsync_v2_ptsz cuMemcpyAtoHAsync_v2_ptsz
    cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoDAsync_v2_ptsz cuMemcpy2DAsync_v2_ptsz
    cuMemcpy3DAsync_v2_ptsz cuMemcpyPeerAsync_ptsz cuMemcpy3DPeerAsync_ptsz cuMemsetD8Async_ptsz
    cuMemsetD16Async_ptsz cuMemsetD32Async_ptsz cuMemsetD2D8Async_ptsz cuMemsetD2D16Async_ptsz
    cuMemsetD2D32Async_ptsz cuStreamGetPriority_ptsz cuStreamGetFlags_ptsz cuStreamWaitEvent_ptsz
    cuStreamAddCallback_ptsz cuStreamAttachMemAsync_ptsz cuStreamQuery_ptsz cuStreamSynchronize_ptsz
    cuEventRecord_ptsz cuLaunchKernel_ptsz 450 cuPointerGetAttributes
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags 454
    cuDeviceGetP2PAttribute 457 cuMemAdvise cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamWriteValue32
    cuStreamWriteValue32_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz 466 cuNNSetAllocator cuMemPrefetchAsync
    cuMemPrefetchAsync_ptsz 471 cuMemRangeGetAttribute cuMemRangeGetAttributes cuStreamWaitValue64
    cuStreamWaitValue64_ptsz cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuLaunchCooperativeKernel
    cuLaunchCooperativeKernel_ptsz 480 cuLaunchCooperativeKernelMultiDevice cuFuncSetAttribute cuDeviceGetUuid
    cuStreamGetCtx cuStreamGetCtx_ptsz 495 cuStreamBeginCapture cuStreamBeginCapture_ptsz cuStreamEndCapture
    cuStreamEndCapture_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz cuGraphCreate cuGraphAddKernelNode 504
    cuGraphAddMemcpyNode 506 cuGraphAddMemsetNode 510 cuGraphGetRootNodes 513 cuGraphInstantiate cuGraphLaunch
    cuGraphLaunch_ptsz cuGraphExecDestroy cuGraphDestroy cuGraphAddDependencies cuGraphRemoveDependencies 522
    cuGraphDestroyNode cuGraphClone cuGraphNodeFindInClone cuGraphAddChildGraphNode cuGraphAddEmptyNode
    cuLaunchHostFunc cuLaunchHostFunc_ptsz 530 cuGraphAddHostNode 532 cuDeviceGetLuid 534 cuGraphGetNodes
    cuGraphGetEdges cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz 539 cuStreamBeginCapture_v2
    cuStreamBeginCapture_v2_ptsz cuThreadExchangeStreamCaptureMode 543 cuOccupancyAvailableDynamicSMemPerBlock
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuMemAddressReserve
    cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemExportToShareableHandle
    cuMemImportFromShareableHandle cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle
    cuMemGetAccess cuStreamSetFlags cuStreamSetFlags_ptsz
    """
)
"""The driver's calls, likewise."""


# An nvprof database as CUPTI's records by kind: its tables are CUPTI's, its names numbers in a table of texts.

_AGAIN = "Copy the file again, or profile again with `nvprof -o FILE`"
_USED = (
    *("KERNEL", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "RUNTIME", "DRIVER", "SYNCHRONIZATION"),
    *("MARKER", "OVERHEAD", "DEVICE"),
)
_COUNTED = ("METRIC", "METRIC_INSTANCE", "EVENT", "EVENT_INSTANCE", "CDP_KERNEL", "UNIFIED_MEMORY_COUNTER")
_MEASURED = 4  # the first of these are of counters, for which kernels of the table KERNEL run one by one
_TEXTS = ("name", "domain")
_ON_DEVICE = ("KERNEL", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "SYNCHRONIZATION")
_CALLS: Mapping[str, Mapping[int, str]] = {"RUNTIME": RUNTIME_CALLS, "DRIVER": DRIVER_CALLS}
_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD: the object of a marker is a process and a thread
_THREAD_BITS = 0xFFFFFFFF
_OBJECT = r"^([0-9A-F]{8})([0-9A-F]{8})"


class _NvprofDatabase(Database):
    """Numbers are taken only where numbers are stored: a text in their place is nothing, not 0."""

    def integers(self, table: str, columns: Sequence[str], **_: object) -> pl.DataFrame:
        """Integer columns of a table with its rowid; null where the table lacks them or holds another type."""
        present = [c for c in columns if c in self.columns(table)]
        if table not in self.tables:
            return pl.DataFrame(schema=dict.fromkeys(("rowid", *columns), pl.Int64))
        listed = ", ".join(f'IIF(typeof("{c}") = \'integer\', "{c}", NULL) AS "{c}"' for c in present)
        query = f'SELECT {", ".join(filter(None, ("rowid AS rowid", listed)))} FROM "{table}" ORDER BY rowid'
        rows = self._bulk(query, dict.fromkeys(("rowid", *present), pl.Int64()), self._row_bound(table))
        absent = (pl.lit(None, pl.Int64).alias(c) for c in columns if c not in present)
        return rows.with_columns(*absent).select(pl.col(c).cast(pl.Int64) for c in ("rowid", *columns))

    def hexes(self, table: str, column: str) -> pl.Series:
        """The bytes of a column as hexadecimal digits, in order of rowid; null where missing."""
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table), dtype=pl.String)
        query = f'SELECT hex("{column}") AS "{column}" FROM "{table}" ORDER BY rowid'
        return self._bulk(query, {column: pl.String()}, self._row_bound(table))[column].cast(pl.String)


def read_records(path: Path) -> Records:
    """The database's records; XspError where it is damaged, or not nvprof's."""
    try:
        check_header(path)
        return _records(_NvprofDatabase(path, _nvprof_tables(path)))
    except XspError as error:  # what it advises is for databases of Nsight
        raise XspError(error.what, path=path, advice=_AGAIN) from error


def _nvprof_tables(path: Path) -> frozenset[str]:
    tables = table_names(path)
    if not is_nvprof(tables):
        raise XspError("a SQLite database, but not one that nvprof wrote", path=path)
    return tables


def _records(database: _NvprofDatabase) -> Records:
    ids = database.integers(STRINGS, ("_id_",))["_id_"]
    strings = strings_by_id(ids, database.texts(STRINGS, "value"))
    kinds: dict[str, pl.DataFrame] = {}
    first = 0
    for kind in _USED:
        if PREFIX + kind in database.tables:
            frame = _table(database, kind).with_columns(pl.col("row") + first)
            named = {name: strings.of(frame[name]).cast(pl.String) for name in _TEXTS if name in frame.columns}
            kinds[kind] = frame.with_columns(**named)
            first += frame.height
    for kind, names in _CALLS.items():
        if kind in kinds:
            kinds[kind] = _with_call_names(kinds[kind], names)
    process = _only_process(kinds)
    kinds |= {kind: _with_process(kinds[kind], kinds, process) for kind in _ON_DEVICE if kind in kinds}
    counted = sum(database.count(PREFIX + kind) for kind in _COUNTED)
    measured = sum(database.count(PREFIX + kind) for kind in _COUNTED[:_MEASURED])
    alone = Finding(
        LedgerKind.KERNELS_ONE_BY_ONE, count=kinds["KERNEL"].height if "KERNEL" in kinds and measured else 0
    )
    return Records(process, kinds, [*_findings_of_unread_records(database, counted), *_unclear(kinds), alone])


def _table(database: _NvprofDatabase, kind: str) -> pl.DataFrame:
    """A table with the fields of its kind; texts are still numbers."""
    fields = KINDS[kind]
    rows = database.integers(PREFIX + kind, fields)
    frame = rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), *fields)
    if kind == "MARKER":
        return _with_thread(frame, database.hexes(PREFIX + kind, "objectId"), database)
    if "threadId" in fields:
        return frame.with_columns(pl.col("threadId") & _THREAD_BITS)
    return frame


def _with_thread(markers: pl.DataFrame, objects: pl.Series, database: _NvprofDatabase) -> pl.DataFrame:
    """Process and thread of each marker from the bytes of its object: two little-endian numbers of 32 bits."""
    kind = database.integers(PREFIX + "MARKER", ("objectKind",))["objectKind"]
    parts = objects.str.to_uppercase().str.extract_groups(_OBJECT).struct.unnest()
    process, thread = (_little_endian(parts.to_series(n)) for n in (0, 1))
    of_thread = pl.lit(kind == _THREAD)
    return markers.with_columns(
        pl.when(of_thread).then(pl.lit(process)).alias("processId"),
        pl.when(of_thread).then(pl.lit(thread)).alias("threadId"),
    )


def _little_endian(digits: pl.Series) -> pl.Series:
    swapped = pl.concat_str(pl.col("digits").str.slice(2 * n, 2) for n in (3, 2, 1, 0))
    frame = pl.DataFrame({"digits": digits})
    return frame.select(swapped.str.to_integer(base=16, strict=False, dtype=pl.Int64)).to_series()


def _with_call_names(calls: pl.DataFrame, names: Mapping[int, str]) -> pl.DataFrame:
    name = pl.col("cbid").replace_strict(dict(names), default=None, return_dtype=pl.String)
    return calls.with_columns(name.alias("name"))


def _only_process(kinds: Mapping[str, pl.DataFrame]) -> int | None:
    """The process that all calls were made in; None where there are several, or none."""
    columns = [kinds[kind]["processId"] for kind in (*_CALLS, "MARKER") if kind in kinds]
    processes = pl.concat(columns).drop_nulls().unique() if columns else pl.Series(dtype=pl.Int64)
    return int(processes[0]) if len(processes) == 1 else None


def _with_process(rows: pl.DataFrame, kinds: Mapping[str, pl.DataFrame], process: int | None) -> pl.DataFrame:
    """Device work does not say its process: it is that of its launch, where only one process has that number."""
    if process is not None or not set(_CALLS) & set(kinds):
        return rows
    calls = pl.concat([kinds[kind].select("correlationId", "processId") for kind in _CALLS if kind in kinds])
    owners = calls.drop_nulls().group_by("correlationId").agg(pl.col("processId").unique())
    single = owners.filter(pl.col("processId").list.len() == 1).select(
        "correlationId", pl.col("processId").list.first().alias("owner")
    )
    joined = rows.join(single, on="correlationId", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("processId", "owner").alias("processId")).drop("owner")


def _findings_of_unread_records(database: _NvprofDatabase, counted: int) -> list[Finding]:
    detail = "records of counters, of unified memory and of kernels launched by kernels, which are not read"
    return [
        Finding(LedgerKind.RECORDS_NOT_READ, detail, counted),
        Finding(LedgerKind.NOT_UTF8, count=database.unreadable_texts),
    ]


def _unclear(kinds: Mapping[str, pl.DataFrame]) -> list[Finding]:
    calls = [kinds[kind] for kind in _CALLS if kind in kinds]
    several = bool(calls) and pl.concat([rows.select("processId") for rows in calls])["processId"].n_unique() > 1
    unclear = sum(kinds[kind]["processId"].null_count() for kind in _ON_DEVICE if kind in kinds) if several else 0
    return [Finding(LedgerKind.UNCLEAR_PROCESS, count=unclear)]


# Turns a database's records into the staging tables, on the path of CUPTI dumps.

_SINCE_1970_NS = 10**18


def read_database(path: Path, options: Options) -> RawTrace:
    """The database's rows; XspError where it is damaged, or holds no record with a start."""
    records = read_records(path)
    parts = [cupti.activities(records), cupti.waits(records), cupti.calls(records)]
    marked, marker_findings = cupti.markers(records, options)
    spans = pl.concat([*(spans for spans, _ in parts), marked["spans"]])
    if spans.is_empty():
        raise XspError(
            "the nvprof database holds no activity with a start",
            path=path,
            advice="Profile again; a program should call cudaDeviceReset() before it ends",
        )
    tables = (
        {name: frame_of(name) for name in RAW_TABLES}
        | marked
        | {
            "spans": spans,
            "kernels": cupti.kernels(records),
            "copies": cupti.copies(records),
            "devices": devices(records),
        }
    )
    findings = (*records.findings, *(f for _, part in parts for f in part), *marker_findings, _overhead(records))
    first = spans["start_ns"].min()
    since_1970 = isinstance(first, int) and first > _SINCE_1970_NS
    facts = RunFacts(profiler="nvprof", epoch_ns=0 if since_1970 else None)
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _overhead(records: Records) -> Finding:
    rows, _ = with_times(records.of("OVERHEAD"), "overhead", device=True, zeros_unknown=True)
    detail = "stretches in which the profiler itself worked; host times around them are longer for it"
    return Finding(LedgerKind.PROFILER_OVERHEAD, detail, rows.height)
