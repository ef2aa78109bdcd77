"""A leveled set on an AMD GPU: rocprofv3 around level MLG and around each group of counters, and what is made of it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth_rocprof import RocprofRun
from tests.runners.fake_tool import write_tool
from xsp_analyze.merge.merge import merge
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_runners import collect
from xsp_runners.run_folder import LEVEL, RunnerError, put_json
from xsp_runners.sets.target import Target
from xsp_runners.tools import nvtx_ranges

if TYPE_CHECKING:
    from xsp_runners.sets.level_process import PlannedRun

__all__: list[str] = []

_AMD = Target("torch", "2.11.0", platform="rocm", built_for="ROCm 7.1", gpus=({"name": "AMD Instinct MI300X"},))
_NVIDIA = Target("torch", "2.11.0", platform="cuda", built_for="CUDA 13.0", gpus=({"name": "NVIDIA H100"},))
_HELP = "--output-format {csv,json,pftrace,otf2,rocpd} --kernel-trace --marker-trace --hip-runtime-trace --pmc"


@pytest.fixture(autouse=True)
def _rocprofv3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSP_ROCPROFV3", write_tool(tmp_path / "rocprofv3", f"print({_HELP!r})"))


def _recorded(run: PlannedRun) -> int:
    """Leaves what the level process says and what rocprofv3 would write: two steps of a layer with one kernel."""
    recording = RocprofRun()
    for step in range(2):
        at = 1_000_000 * (step + 1)
        recording.call(at, at + 500_000, "step", 100 * step + 1, "MARKER_CORE_API")
        recording.call(at + 1_000, at + 90_000, "nn.Module: Linear_0", 100 * step + 2, "MARKER_CORE_API")
        recording.launch(at + 2_000, "gemm", 100 * step + 3, (at + 20_000, at + 20_000 + 1_000 * len(run.command)))
        if run.counters:
            recording.count(step + 1, **dict.fromkeys(run.counters, 2.0))
    (run.folder / "trace_908_results.json").write_bytes(recording.json())
    description = {
        "schema_version": 1,
        "level": "MLG",
        "model": {"name": "mlp"},
        "framework": {"name": "torch", "version": "2.11.0"},
        "batch_size": 8,
        "device": {"name": "AMD Instinct MI300X (synthetic)"},
        "steps": 2,
        "step_durations_ns": [500_000, 500_000],
    }
    put_json(run.folder / LEVEL, description)
    return 0


def _collect(out: Path, *options: str, start: object = _recorded, here: Target = _AMD) -> int:
    arguments = ["--workload", "zoo:mlp", "--out", str(out), *options]
    return collect.main(arguments, start=start, ask=lambda *_: here)  # type: ignore[arg-type]


def test_rocprofv3_is_put_around_level_processes_on_an_amd_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        _collect(tmp_path, "--dry-run", "--levels", "MLG,MLG+counters", "--kernels", "rocprof", "--chip", "gfx942") == 0
    )
    kernels, *counters = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    tools = [next(part for part in command if part.endswith("rocprofv3")) for command in (kernels, *counters)]
    assert tools == [str(tmp_path / "rocprofv3")] * 5
    assert " ".join(kernels).endswith("--annotate nvtx")
    counted = [command[command.index("--pmc") + 1 : command.index("--kernel-trace")] for command in counters]
    assert counted[2:] == [["FETCH_SIZE"], ["WRITE_SIZE"]]
    folders = [Path(command[command.index("--output-directory") + 1]).name for command in counters]
    assert folders == ["mlg-counters-flops_fp32_fp16", "mlg-counters-flops_other", *(f"mlg-counters-dram_{way}" for way in ("read", "write"))]  # fmt: skip  # noqa: E501
    assert all("--steps 1 " in " ".join(command) for command in counters)


def test_counters_of_a_rocm_torch_are_rocprofv3s_without_being_asked(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def start(run: PlannedRun) -> int:
        commands.append(list(run.command))
        return _recorded(run)

    assert _collect(tmp_path / "runs", "--levels", "MLG+counters", "--counters", "dram_read", start=start) == 0
    assert [command[1:3] for command in commands] == [["--pmc", "FETCH_SIZE"]]


def test_the_set_is_merged_with_counters_by_layer(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    options = ("--levels", "MLG,MLG+counters", "--kernels", "rocprof", "--counters", "dram_read,dram_write")
    assert _collect(out, *options) == 0
    described = json.loads((out / "mlg-counters-dram_read" / "run.json").read_text())
    assert described["files"] == [{"path": "trace_908_results.json", "format": "rocprofv3"}]
    assert (described["counters"], described["step_durations_ns"]) == (["FETCH_SIZE"], [])
    profile = merge(read_run_set(out, Options()))
    metrics = profile.frame("metrics")
    names = {str(name): value for name, value in metrics.select("metric", "value").rows()}
    assert (names["dram_read_bytes"], names["dram_write_bytes"]) == (2_048.0, 2_048.0)
    roles = profile.frame("runs")["role"].to_list()
    assert roles == ["kernels", "counters", "counters"]


def test_a_run_in_which_nothing_was_counted_is_not_complete(tmp_path: Path) -> None:
    def start(run: PlannedRun) -> int:
        _recorded(run)
        (run.folder / "trace_908_results.json").write_bytes(RocprofRun().json())
        return 0

    assert _collect(tmp_path / "runs", "--levels", "MLG", "--kernels", "rocprof", start=start) == 1
    assert "rocprofv3 recorded no kernel" in (tmp_path / "runs" / "mlg" / "error.json").read_text()


def test_each_makers_tools_are_for_its_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _collect(tmp_path / "a", "--levels", "MLG", "--kernels", "nsys") == 2
    assert "choose --kernels framework or --kernels rocprof" in capsys.readouterr().err
    assert _collect(tmp_path / "b", "--levels", "MLG", "--kernels", "rocprof", here=_NVIDIA) == 2
    assert "rocprofv3 is of AMD's GPUs, and this one is of NVIDIA's" in capsys.readouterr().err


def test_ranges_of_a_rocm_build_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package nvtx would be preferred, and rocprofv3 does not see its ranges."""
    nvtx = SimpleNamespace(
        mark=lambda _: None,
        range_push=lambda text: ("push", text),
        range_pop=lambda: "pop",
        range_start=lambda text: ("start", text),
        range_end=lambda number: ("end", number),
    )
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(hip="7.1")  # type: ignore[attr-defined]
    cuda = ModuleType("torch.cuda")
    cuda.nvtx = nvtx  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace())
    assert nvtx_ranges.nvtx_calls().push("step") == ("push", "step")
    torch.version.hip = None
    with pytest.raises((AttributeError, RunnerError)):
        nvtx_ranges.nvtx_calls()
