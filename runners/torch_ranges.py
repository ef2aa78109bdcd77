"""NVTX ranges around steps and modules of a PyTorch workload, for tools that record from outside of the process.

A recorded step is `step`, a warm-up step `warmup`, and a module's call has the name that torch.profiler gives it
(`Linear_3`: the fourth Linear to be called), so that its layers match those of a run under torch.profiler.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runners.nvtx_calls import nvtx_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners.nvtx_calls import NvtxCalls

__all__ = ["StepRanges", "ranges"]


@dataclass
class StepRanges:
    """The range of the step under way."""

    _calls: NvtxCalls
    _warmup: int
    _begun: int = 0

    def open(self) -> None:
        """A step begins: `warmup` for the first ones, then `step`."""
        self._calls.push("warmup" if self._begun < self._warmup else "step")
        self._begun += 1

    def close(self) -> None:
        """The step ended."""
        self._calls.pop()


@dataclass
class _Names:
    """Instances of each class, numbered in the order of their first call."""

    _numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, module: object) -> str:
        kind = type(module).__name__
        known = self._numbers.setdefault(kind, {})
        return f"{kind}_{known.setdefault(id(module), len(known))}"


@contextmanager
def ranges(torch: Any, warmup: int) -> Iterator[StepRanges]:  # noqa: ANN401 (torch's types are not known without it)
    """Every module's call is a range while this is open; steps are ranges where the session says so."""
    calls, names = nvtx_calls(), _Names()

    def enter(module: object, _inputs: object) -> None:
        calls.push(names.of(module))

    def leave(*_: object) -> None:
        calls.pop()

    modules = torch.nn.modules.module
    hooks = [
        modules.register_module_forward_pre_hook(enter),
        modules.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield StepRanges(calls, warmup)
    finally:
        for hook in hooks:
            hook.remove()
