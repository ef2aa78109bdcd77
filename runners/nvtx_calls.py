"""NVTX push and pop, by whichever of their providers is installed; in NVTX's default domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NvtxCalls", "nvtx_calls"]


@dataclass(frozen=True)
class NvtxCalls:
    """A thread's ranges nest: `pop` closes the one that was pushed last."""

    push: Callable[[str], object]
    pop: Callable[[], object]


def nvtx_calls() -> NvtxCalls:
    """The calls of the package nvtx, else of torch, whose CPU builds have none; RunnerError where there are none."""
    try:
        import nvtx  # noqa: PLC0415 (installed only where ranges are wanted)
    except ImportError:
        return _of_torch()
    return NvtxCalls(nvtx.push_range, nvtx.pop_range)


def _of_torch() -> NvtxCalls:
    try:
        from torch.cuda import nvtx  # noqa: PLC0415

        nvtx.mark("xsp")
    except (ImportError, RuntimeError) as error:
        raise RunnerError("NVTX ranges need the package nvtx, or a CUDA build of torch: pip install nvtx") from error
    return NvtxCalls(nvtx.range_push, nvtx.range_pop)
