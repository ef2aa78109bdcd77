"""Compiled models under tools that record from outside: graphs stay in one piece, and their calls are marked."""

from __future__ import annotations

import ctypes
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners.tools.nvtx_ranges import NvtxCalls, providing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.torch

_pid = ctypes.CDLL(None).getpid  # a call that no compiler can look into, as those of NVTX


class _Ranges:
    """Writes down ranges with their depth."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, str]] = []
        self._depth = 0

    def push(self, name: str) -> None:
        _pid()
        self.opened.append((self._depth, name))
        self._depth += 1

    def pop(self, *_: object) -> None:
        _pid()
        self._depth -= 1

    @property
    def calls(self) -> NvtxCalls:
        return NvtxCalls(self.push, self.pop, self.push, self.pop)


@pytest.fixture
def dynamo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What Dynamo counted, from nothing; the compiler's caches are empty."""
    pytest.importorskip("torch", reason="torch is not installed")
    import torch._dynamo  # noqa: PLC0415 (heavy)
    from torch._dynamo.utils import counters  # noqa: PLC0415

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch._dynamo.reset()
    counters.clear()
    yield counters
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("annotated", [False, True])
def test_ranges_of_modules_break_no_graph_of_a_program_that_compiles_by_itself(dynamo: Any, *, annotated: bool) -> None:  # noqa: ANN401
    import torch  # noqa: PLC0415

    from xsp_runners.tools.nvtx_ranges import StepRanges, module_ranges  # noqa: PLC0415

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    compiled, marked = torch.compile(model, backend="eager"), _Ranges()
    steps = StepRanges(marked.calls, 1)

    def run() -> None:
        for _ in range(3):
            steps.open()
            with torch.inference_mode():
                compiled(torch.ones(2, 4))
            steps.close()

    if annotated:
        with module_ranges(torch, steps):
            run()
    else:
        run()
    assert (sum(dynamo["graph_break"].values()), dynamo["stats"]["unique_graphs"]) == (0, 1)
    layers = [name for depth, name in marked.opened if depth]
    assert layers == (["nn.Module: OptimizedModule_0"] * 2 if annotated else [])


@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_a_compiled_level_under_a_tool_marks_steps_graphs_and_libraries(
    tmp_path: Path,
    dynamo: Any,  # noqa: ANN401
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler: apt-get install g++")
    from xsp_runners import torch_levels  # noqa: PLC0415 (imports torch)

    ranges, out = _Ranges(), tmp_path / "mlg"
    options = ["--execution", "compile", "--device", "cpu", "--steps", "2", "--warmup", "1", "--batch-size", "2"]
    by_a_tool = ["--recorder", "none", "--annotate", "nvtx"]
    with providing(ranges.calls):
        level = ["--level", "MLG", "--workload", "zoo:mlp", "--out", str(out)]
        assert torch_levels.main([*level, *options, *by_a_tool]) == 0
    assert sum(dynamo["graph_break"].values()) == 0
    code = json.loads((out / "compiled_code.json").read_text())
    (graph,) = code["graphs"]
    libraries = [kernel["name"] for kernel in graph["kernels"] if kernel["name"].startswith("extern")]
    assert libraries == ["extern_kernels.addmm"] * 3
    call = f"## Call CompiledFxGraph {graph['region']} ##"
    assert ranges.opened == [(0, "step"), (1, call), *[(2, "aten::addmm")] * 3] * 2
    described = json.loads((out / "level.json").read_text())
    assert described["files"] == [{"path": "compiled_code.json", "format": "compiled_code"}]
