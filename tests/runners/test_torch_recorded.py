"""A run on a GPU of which the profiler recorded no kernel fails, and says why that may be."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners.run_folder import RunnerError
from xsp_runners.torch_profiler import Recorded, check_kernels, count_recorded

if TYPE_CHECKING:
    from pathlib import Path

_TRACE = """{"traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {"x": "\\"cat\\": \\"kernel\\""}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel"},
  {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx"},
  {"ph": "X", "cat": "kernel", "name": "gemm"},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD"}
]}"""


def test_kernels_and_calls_are_counted_by_their_category() -> None:
    assert count_recorded(_TRACE) == Recorded(kernels=1, calls=2)


def _torch(*, memory_bytes: int = 1 << 20, activities: tuple[str, ...] = ("CPU", "CUDA")) -> Any:  # noqa: ANN401
    profiler = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CUDA="CUDA"), supported_activities=lambda: set(activities)
    )
    cuda = SimpleNamespace(max_memory_allocated=lambda: memory_bytes)
    return SimpleNamespace(cuda=cuda, profiler=profiler, __version__="2.13.0")


@pytest.mark.parametrize(
    ("torch", "calls", "environment", "cause"),
    [
        (_torch(memory_bytes=0), 0, {}, "it ran on the CPU"),
        (_torch(activities=("CPU",)), 0, {}, "built without CUPTI"),
        (_torch(), 0, {"CUDA_INJECTION64_PATH": "libToolsInjection64.so"}, "another profiler"),
        (_torch(), 12, {}, "its 12 launches and other calls are there"),
        (_torch(), 0, {}, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        (_torch(), 0, {}, "--cap-add=SYS_ADMIN"),
    ],
)
def test_the_cause_is_said_as_far_as_it_is_known(
    torch: Any,  # noqa: ANN401
    calls: int,
    environment: dict[str, str],
    cause: str,
) -> None:
    with pytest.raises(RunnerError, match="recorded no kernel of the GPU") as raised:
        check_kernels(torch, Recorded(0, calls), environment)
    assert cause in str(raised.value)


def test_kernels_are_enough() -> None:
    check_kernels(_torch(memory_bytes=0), Recorded(1, 0), {})


@pytest.mark.torch
@pytest.mark.parametrize("calls", [True, False])
def test_a_level_without_its_kernels_fails_and_leaves_no_run(tmp_path: Path, *, calls: bool) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.runners.async_device import AsyncDevice  # noqa: PLC0415
    from tests.runners.async_device_torch import simulated  # noqa: PLC0415 (imports torch)
    from xsp_runners import torch_levels  # noqa: PLC0415

    with simulated(AsyncDevice(kernels_are_recorded=False, calls_are_recorded=calls)):
        status = torch_levels.main(["--level", "MLG", "--workload", "zoo:mlp", "--out", str(tmp_path)])
    assert status == 2
    assert not (tmp_path / "run.json").exists()
    assert "recorded no kernel of the GPU" in json.loads((tmp_path / "error.json").read_text())["error"]


@pytest.mark.torch
def test_a_capture_around_a_loop_without_kernels_fails_and_writes_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from tests.runners.async_device import AsyncDevice  # noqa: PLC0415
    from tests.runners.async_device_torch import simulated  # noqa: PLC0415
    from xsp_runners.torch_profiler import capture  # noqa: PLC0415

    def run() -> None:
        with capture(tmp_path / "run", steps=1) as session:
            for _ in range(2):
                torch.ones(2, 2, device="cuda").sum()
                session.step()

    with simulated(AsyncDevice(kernels_are_recorded=False)), pytest.raises(RunnerError, match="recorded no kernel"):
        run()
    assert not (tmp_path / "run").exists()
    with simulated():
        run()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["level"] == "MLG"
