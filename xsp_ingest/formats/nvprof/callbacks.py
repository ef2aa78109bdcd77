"""Names of CUDA's calls by the callback ids that CUPTI numbers them with; nvprof's databases hold only the ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DRIVER_CALLS", "RUNTIME_CALLS"]


def _numbered(text: str) -> Mapping[int, str]:
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


RUNTIME_CALLS = _numbered(
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

DRIVER_CALLS = _numbered(
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
