"""The folder of one run: its files appear whole, `run.json` last; and why a run failed.

An interrupted run is so never taken for a complete one.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "CERTAIN",
    "ERROR",
    "LEVEL",
    "LIKELY",
    "RUN",
    "SCHEMA_VERSION",
    "RunnerError",
    "clear",
    "device_memory",
    "error_of",
    "is_complete",
    "make_room",
    "memory_is_full",
    "public_options",
    "put",
    "put_error",
    "put_json",
    "read_json",
    "without_private_folders",
]

SCHEMA_VERSION = 1
"""The version of run.json that runners write."""
RUN = "run.json"
ERROR = "error.json"
LEVEL = "level.json"
"""What a level process tells of a run that a tool around it records: run.json once the tool's files are there."""


class RunnerError(Exception):
    """What kept a run from being made, in one sentence for its user."""


def put(path: Path, content: bytes) -> None:
    """Writes the file beside its place and renames it into it; RunnerError where that cannot be done."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {path.parent}: {error.strerror}") from error


def put_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes the object as `put` does."""
    put(path, (json.dumps(content, indent=2) + "\n").encode())


def put_error(
    folder: Path,
    level: str,
    sentence: str,
    *,
    memory_full: str | None = None,
    batch_size: int | None = None,
    options: Mapping[str, object] | None = None,
    more: Mapping[str, object] | None = None,
) -> None:
    """Puts on record that the run failed; `memory_full` is `certain` or `likely` where that is thought to be why."""
    optional = {
        "memory_full": memory_full,
        "batch_size": batch_size,
        "options": public_options(options) if options else None,
        **(more or {}),
    }
    put_json(
        folder / ERROR,
        {
            "schema_version": SCHEMA_VERSION,
            "level": level,
            "status": "out_of_memory" if memory_full else "failed",
            "error": sentence,
            **{key: value for key, value in optional.items() if value is not None},
        },
    )


def make_room(folder: Path, files: Iterable[Path] = ()) -> None:
    """Makes the folder, and takes away what an earlier run left, so that it is not taken for this one's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {folder}: {error.strerror}") from error


def clear(folder: Path) -> None:
    """Takes away what an earlier attempt said of itself, before its files are written over."""
    try:
        for name in (RUN, ERROR, LEVEL):
            (folder / name).unlink(missing_ok=True)
        for unfinished in folder.glob(".*.part"):
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunnerError(f"the run cannot be written to {folder}: {error.strerror}") from error


def is_complete(folder: Path, level: str, options: Mapping[str, object]) -> bool:
    """Whether the folder holds a finished run of this level, made with these options, and all its files."""
    facts = read_json(folder / RUN)
    files = facts.get("files")
    return (
        (facts.get("schema_version"), facts.get("runner_level")) == (SCHEMA_VERSION, level)
        and facts.get("options") == public_options(options)
        and isinstance(files, list)
        and all((folder / file["path"]).is_file() for file in files)
    )


def public_options(options: Mapping[str, object]) -> dict[str, object]:
    """The options as they are put on record: without the folders of whoever gave them."""
    return {name: _without_folders(value) for name, value in options.items()}


def _without_folders(value: object) -> object:
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if not isinstance(value, str):
        return value
    if Path(value).is_absolute() and not Path(value).is_relative_to(Path.cwd()):
        return f".../{Path(value).name}"
    return without_private_folders(value)


def without_private_folders(text: str) -> str:
    """The text with the working folder as `.` and the home folder as `~`."""
    return text.replace(str(Path.cwd()), ".").replace(str(Path.home()), "~")


def error_of(folder: Path) -> str | None:
    """The sentence that a failed run left."""
    sentence = read_json(folder / ERROR).get("error")
    return sentence if isinstance(sentence, str) else None


def read_json(path: Path) -> dict[str, object]:
    """The object in the file; empty where there is none, whole or at all."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


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
