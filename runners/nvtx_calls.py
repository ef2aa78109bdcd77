"""NVTX ranges, by whichever of their providers is installed; in NVTX's default domain."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["STEP", "NvtxCalls", "nvtx_calls", "providing"]

STEP = "step"
"""The range of a recorded step, as level processes mark it and tools select it: of the process, not of a thread."""


@dataclass(frozen=True)
class NvtxCalls:
    """Ranges of a thread, which nest, and ranges of the whole process, whichever of its threads does the work.

    `pop` closes what this thread pushed last, `end` the range that `start` answered with.
    """

    push: Callable[[str], object]
    pop: Callable[[], object]
    start: Callable[[str], Any]
    end: Callable[[Any], object]


_providers: list[NvtxCalls] = []


@contextmanager
def providing(calls: NvtxCalls) -> Iterator[None]:
    """Ranges of programs that run inside are told to these calls: a recorder in the process needs no NVTX."""
    _providers.append(calls)
    try:
        yield
    finally:
        _providers.pop()


def nvtx_calls() -> NvtxCalls:
    """The calls of a recorder in this process, of the package nvtx, or of torch, whose CPU builds have none.

    Ranges of a ROCm build of torch are roctx ranges, which rocprofv3 records; NVTX's own it does not see.

    RunnerError where there are none.
    """
    if _providers:
        return _providers[-1]
    if _is_of_amd():
        return _of_torch()
    try:
        import nvtx  # noqa: PLC0415 (installed only where ranges are wanted)
    except ImportError:
        return _of_torch()
    return NvtxCalls(nvtx.push_range, nvtx.pop_range, nvtx.start_range, nvtx.end_range)


def _is_of_amd() -> bool:
    """Whether torch is imported, and a ROCm build."""
    return bool(getattr(getattr(sys.modules.get("torch"), "version", None), "hip", None))


def _of_torch() -> NvtxCalls:
    try:
        from torch.cuda import nvtx  # noqa: PLC0415

        nvtx.mark("xsp")
    except (ImportError, RuntimeError) as error:
        raise RunnerError("NVTX ranges need the package nvtx, or a CUDA build of torch: pip install nvtx") from error
    return NvtxCalls(nvtx.range_push, nvtx.range_pop, nvtx.range_start, nvtx.range_end)
