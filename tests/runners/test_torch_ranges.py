"""Which ranges level processes mark: steps of the process, modules of a thread, none in the warm-up."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from xsp_runners.tools.nvtx_ranges import NvtxCalls, StepRanges, nvtx_calls

if TYPE_CHECKING:
    import pytest


def test_a_step_is_a_range_of_the_process_and_warm_up_is_none() -> None:
    """TensorFlow's and JAX's steps, too: their executors launch from threads of their own."""
    log: list[object] = []

    def start(name: str) -> int:
        log.append(name)
        return len(log)

    steps = StepRanges(NvtxCalls(log.append, log.clear, start, log.append), 1)
    for _ in range(3):
        steps.open()
        steps.close()
    assert log == ["step", 1, "step", 3]


def test_either_provider_of_nvtx_has_both_kinds_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("push_range", "pop_range", "start_range", "end_range")
    package: Any = SimpleNamespace(**{name: name for name in names})
    monkeypatch.setitem(sys.modules, "nvtx", package)
    assert nvtx_calls() == NvtxCalls(*names)  # type: ignore[arg-type]

    names = ("range_push", "range_pop", "range_start", "range_end")
    cuda: Any = ModuleType("torch.cuda")
    cuda.nvtx = SimpleNamespace(mark=lambda _: None, **{name: name for name in names})
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert nvtx_calls() == NvtxCalls(*names)  # type: ignore[arg-type]
