"""NVTX push and pop, by whichever of their providers is installed; in NVTX's default domain."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NvtxCalls", "nvtx_calls", "providing"]


@dataclass(frozen=True)
class NvtxCalls:
    """A thread's ranges nest: `pop` closes the one that was pushed last."""

    push: Callable[[str], object]
    pop: Callable[[], object]


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

    RunnerError where there are none.
    """
    if _providers:
        return _providers[-1]
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
