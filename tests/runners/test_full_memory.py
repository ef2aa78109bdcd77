"""Memory that is full, in all its spellings, told from other failures, and surely from likely."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING

import pytest

from xsp_runners.run_folder import CERTAIN, LIKELY, RunnerError, memory_is_full
from xsp_runners.sets.level_process import main

if TYPE_CHECKING:
    from pathlib import Path


_LIKELY = " (likely, but not surely, memory was full)"


class OutOfMemoryError(RuntimeError):
    """As torch names it: torch.OutOfMemoryError, and before 2.5 torch.cuda.OutOfMemoryError."""


class AcceleratorError(RuntimeError):
    """As torch names an error of the CUDA runtime since 2.8."""


class ResourceExhaustedError(Exception):
    """As TensorFlow names it."""


class XlaRuntimeError(RuntimeError):
    """As JAX names it."""


class OutOfResources(Exception):  # noqa: N818 (Triton's name)
    """As Triton names a kernel that wants more shared memory than a multiprocessor has."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"), CERTAIN),
        (OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 MiB"), CERTAIN),
        (OutOfMemoryError("XPU out of memory. Tried to allocate 20.00 MiB"), CERTAIN),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), CERTAIN),
        (AcceleratorError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"), CERTAIN),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), CERTAIN),
        (RuntimeError("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY"), CERTAIN),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), CERTAIN),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), CERTAIN),
        (RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED"), CERTAIN),
        (RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"), CERTAIN),
        (RuntimeError("HIP error: hipErrorOutOfMemory"), CERTAIN),
        (RuntimeError("NCCL error: unhandled cuda error. Last error:\nCuda failure 2 'out of memory'"), CERTAIN),
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."), CERTAIN),
        (ResourceExhaustedError("OOM when allocating tensor with shape[4096,4096] and type float"), CERTAIN),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), CERTAIN),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), CERTAIN),
        (RuntimeError("std::bad_alloc"), CERTAIN),
        (MemoryError(), CERTAIN),
        (OSError(errno.ENOMEM, "no"), CERTAIN),
        (RuntimeError("GET was unable to find an engine to execute this computation"), LIKELY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), LIKELY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), LIKELY),
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Failed to load in-memory CUBIN"), LIKELY),
        (ResourceExhaustedError("graph"), LIKELY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), None),
        (RuntimeError("DataLoader worker is killed by signal: Bus error. Workers are out of shared memory"), None),
        (OutOfResources("out of resource: shared memory, Required: 147456, Hardware limit: 101376"), None),
        (RunnerError("torch sees no CUDA device here"), None),
    ],
)
def test_a_full_memory_is_told_from_other_failures(error: Exception, expected: str | None) -> None:
    assert memory_is_full(error) == expected


def _raised(first: Exception, then: Exception, *, named: bool) -> Exception:
    try:
        try:
            raise first
        except type(first) as error:
            if named:
                raise then from error
            raise then  # noqa: B904 (as programs do)
    except type(then) as error:
        return error


def test_an_error_is_as_sure_as_what_it_was_raised_of() -> None:
    full = OutOfMemoryError("CUDA out of memory")
    assert memory_is_full(_raised(full, RunnerError("timm cannot build x"), named=True)) == CERTAIN
    assert memory_is_full(_raised(full, ValueError("while a smaller batch was tried"), named=False)) == LIKELY


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CUDA out of memory", "RuntimeError: CUDA out of memory"),
        (
            "GET was unable to find an engine to execute this computation",
            "RuntimeError: GET was unable to find an engine to execute this computation" + _LIKELY,
        ),
        ("bad shape", "RuntimeError: bad shape"),
    ],
)
def test_the_record_of_a_run_says_how_sure_it_is(tmp_path: Path, text: str, sentence: str) -> None:
    def measure(_args: object) -> dict[str, object]:
        raise RuntimeError(text)

    arguments = ["--level", "M", "--workload", "zoo:mlp", "--batch-size", "4", "--out", str(tmp_path)]
    assert main("level", measure, arguments) == 2
    record = json.loads((tmp_path / "error.json").read_text())
    full = memory_is_full(RuntimeError(text))
    assert (record["error"], record.get("memory_full"), record["batch_size"]) == (sentence, full, 4)
    assert record["status"] == ("out_of_memory" if full else "failed")
