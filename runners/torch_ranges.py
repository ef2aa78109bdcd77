"""NVTX ranges around steps and modules of a PyTorch workload, for tools that record from outside of the process.

A recorded step is `step`, and a module's call in it has the name that torch.profiler gives it (`nn.Module: Linear_3`,
the fourth Linear to be called), so that its layers match those of a run under torch.profiler. Warm-up is not marked.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_runners.nvtx_calls import nvtx_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_runners.nvtx_calls import NvtxCalls

__all__ = ["StepRanges", "ranges"]


@dataclass
class StepRanges:
    """The range of the recorded step under way."""

    _calls: NvtxCalls
    _warmup: int
    _begun: int = 0
    inside: bool = False

    def open(self) -> None:
        """A step begins: one of the first is warm-up, and has no range."""
        self._begun += 1
        if self._begun > self._warmup:
            self._calls.push("step")
            self.inside = True

    def close(self) -> None:
        """The step ended."""
        if self.inside:
            self._calls.pop()
            self.inside = False


@dataclass
class _Names:
    """Instances of each class, numbered in the order of their first call."""

    _numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, module: object) -> str:
        kind = type(module).__name__
        numbers = self._numbers.setdefault(kind, {})
        return f"nn.Module: {kind}_{numbers.setdefault(id(module), len(numbers))}"


@contextmanager
def ranges(torch: Any, warmup: int) -> Iterator[StepRanges]:  # noqa: ANN401 (torch's types are not known without it)
    """Every module's call in a recorded step is a range while this is open; the session says when steps are."""
    calls, names = nvtx_calls(), _Names()
    steps = StepRanges(calls, warmup)

    def enter(module: object, _inputs: object) -> None:
        name = names.of(module)  # in warm-up too, as calls are numbered from the first one on
        if steps.inside:
            calls.push(name)

    def leave(*_: object) -> None:
        if steps.inside:
            calls.pop()

    modules = torch.nn.modules.module
    hooks = [
        modules.register_module_forward_pre_hook(enter),
        modules.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()
