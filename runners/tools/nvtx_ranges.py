"""NVTX ranges around steps and modules, for tools that record from outside of the process; in NVTX's default domain.

A recorded step is `step`, a range of the whole process (start/end), as autograd launches a backward pass from a thread
of its own. A module's call in it is a range of its thread (push/pop) by the name that torch.profiler gives it
(`nn.Module: Linear_3`, the fourth Linear to be called), so that its layers match those of a run under torch.profiler.
Warm-up is not marked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xsp_runners.run_folder import RunnerError

__all__ = ["STEP", "NvtxCalls", "StepRanges", "module_ranges", "nvtx_calls", "providing"]

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


@dataclass
class StepRanges:
    """The range of the recorded step under way."""

    calls: NvtxCalls
    _warmup: int
    _begun: int = 0
    _range: Any = None
    inside: bool = False

    def open(self) -> None:
        """A step begins: one of the first is warm-up, and has no range."""
        self._begun += 1
        if self._begun > self._warmup:
            self._range = self.calls.start(STEP)
            self.inside = True

    def close(self) -> None:
        """The step ended."""
        if self.inside:
            self.calls.end(self._range)
            self.inside = False

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """The body is a range of this name, in a recorded step."""
        if not self.inside:
            yield
            return
        self.calls.push(name)
        try:
            yield
        finally:
            self.calls.pop()


@dataclass
class _Names:
    """Instances of each class, numbered in the order of their first call."""

    _numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, module: object) -> str:
        kind = type(module).__name__
        numbers = self._numbers.setdefault(kind, {})
        return f"nn.Module: {kind}_{numbers.setdefault(id(module), len(numbers))}"


@contextmanager
def module_ranges(torch: Any, steps: StepRanges) -> Iterator[None]:
    """Every module's call in a recorded step is a range while this is open.

    A hook would end every graph that torch.compile makes, as it cannot be compiled: in compiled code there are none.
    """
    calls, names, compiling = steps.calls, _Names(), torch.compiler.is_compiling

    def enter(module: object, _inputs: object) -> None:
        if compiling():
            return
        name = names.of(module)  # in warm-up too, as calls are numbered from the first one on
        if steps.inside:
            calls.push(name)

    def leave(*_: object) -> None:
        if not compiling() and steps.inside:
            calls.pop()

    modules = torch.nn.modules.module
    hooks = [
        modules.register_module_forward_pre_hook(enter),
        modules.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
