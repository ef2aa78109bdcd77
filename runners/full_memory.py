"""Whether a run failed for want of memory: surely, or only likely, by what was raised and what it was raised of."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CERTAIN", "LIKELY", "device_memory", "memory_is_full"]

CERTAIN, LIKELY = "certain", "likely"
"""How sure it is that memory was full: an allocation was refused, or a message that full memory brings among others."""

_TYPES = {"OutOfMemoryError", "MemoryError", "_ArrayMemoryError"}
_REFUSED = (
    "out of memory",  # of CUDA, HIP, XPU and MPS; NCCL repeats CUDA's
    "outofmemory",  # hipErrorOutOfMemory, TensorRT's OutOfMemory
    "out_of_memory",  # CUDA_ERROR_OUT_OF_MEMORY
    "out_of_device_memory",  # Level Zero's and Unified Runtime's
    "out_of_host_memory",
    "cudaerrormemoryallocation",
    "status_alloc_failed",  # cuBLAS, cuDNN, cuSOLVER, cuSPARSE, hipBLAS
    "status_allocation_failed",  # cuRAND
    "cufft_alloc_failed",
    "miopenstatusallocfailed",
    "rocblas_status_memory_error",
    "oom when allocating",  # TensorFlow
    "failed to allocate memory",  # ONNX Runtime
    "can't allocate memory",  # PyTorch's allocator of the CPU, in two spellings
    "not enough memory",
    "cannot allocate memory",
    "std::bad_alloc",
)
_OFTEN_MEMORY = (
    "unable to find an engine to execute this computation",  # cuDNN's, none of which got its workspace
    "unable to find a valid cudnn algorithm",
    "cudnn_status_not_initialized",  # a handle takes memory
    "cublas_status_not_initialized",
    "cusolver_status_not_initialized",
    "hipblas_status_not_initialized",
    "miopenstatusnotinitialized",
    "resource_exhausted",  # XLA's word for memory, and gRPC's for much else
    "resource exhausted",
    "out_of_resources",
    "no available memory for the cache blocks",  # vLLM, of what weights leave
)
_OFTEN_MEMORY_TYPES = {"ResourceExhaustedError"}


def memory_is_full(error: BaseException) -> str | None:
    """CERTAIN, LIKELY, or None; also where another error was raised of it, or while it was handled."""
    verdicts = [(_of_one(each), raised_from) for each, raised_from in _with_causes(error)]
    if any(verdict == CERTAIN and raised_from for verdict, raised_from in verdicts):
        return CERTAIN
    return LIKELY if any(verdict for verdict, _ in verdicts) else None


def _of_one(error: BaseException) -> str | None:
    names, text = {each.__name__ for each in type(error).__mro__}, str(error).lower()
    if names & _TYPES or any(phrase in text for phrase in _REFUSED):
        return CERTAIN
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return CERTAIN
    often = names & _OFTEN_MEMORY_TYPES or any(phrase in text for phrase in _OFTEN_MEMORY)
    return LIKELY if often else None


def _with_causes(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """The error and what it came of; whether each was named as the cause, not only being handled."""
    seen: set[int] = set()
    current, named = error, True
    while id(current) not in seen:
        yield current, named
        seen.add(id(current))
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is None:
            return
        named = named and current.__cause__ is not None
        current = cause


def device_memory() -> dict[str, int]:
    """Free and total bytes of the current GPU, as torch tells them where it is in use; else empty."""
    torch: Any = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return {}
        free, total = torch.cuda.mem_get_info()
    except Exception:  # noqa: BLE001 (a device that failed may refuse every call; the first error is what counts)
        return {}
    return {"free_bytes": int(free), "total_bytes": int(total)}
