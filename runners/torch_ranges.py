"""NVTX ranges around steps and modules of a PyTorch workload, for tools that record from outside of the process.

A recorded step is `step`, a range of the whole process (start/end), as autograd launches a backward pass from a thread
of its own. A module's call in it is a range of its thread (push/pop) by the name that torch.profiler gives it
(`nn.Module: Linear_3`, the fourth Linear to be called), so that its layers match those of a run under torch.profiler.
Warm-up is not marked.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_runners.nvtx_calls import STEP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_runners.nvtx_calls import NvtxCalls

__all__ = ["StepRanges", "module_ranges"]


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
def module_ranges(torch: Any, steps: StepRanges) -> Iterator[None]:  # noqa: ANN401 (its types are not known without it)
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
