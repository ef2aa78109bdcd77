"""What the Python of the work has for it, asked of its framework; and what is said before anything runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners import collect
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.target import Target, probe
from xsp_runners.tools.programs import find_gpu

if TYPE_CHECKING:
    from xsp_runners.sets.level_process import PlannedRun

_TWO = ({"name": "NVIDIA H100 80GB HBM3", "capability": "9.0"}, {"name": "NVIDIA A100", "capability": "8.0"})
_TORCH = """
import os
from types import SimpleNamespace
__version__ = "2.11.0"
version = SimpleNamespace(cuda=os.environ.get("FAKE_CUDA"), hip=os.environ.get("FAKE_HIP"))
names = os.environ.get("FAKE_GPUS", "").split(",") if os.environ.get("FAKE_GPUS") else []
if os.environ.get("CUDA_VISIBLE_DEVICES"):
    names = [names[int(n)] for n in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
cuda = SimpleNamespace(
    is_available=lambda: bool(names),
    device_count=lambda: len(names),
    get_device_properties=lambda n: SimpleNamespace(
        name=names[n], major=9, minor=0, total_memory=80 << 30, multi_processor_count=132),
)
xpu = SimpleNamespace(is_available=lambda: "FAKE_XPU" in os.environ, get_device_name=lambda: "Intel GPU Max")
backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: "FAKE_MPS" in os.environ))
"""


@pytest.fixture(name="fake_torch")
def fixture_fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "torch.py").write_text(_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize(
    ("environment", "platform", "head"),
    [
        (
            {"FAKE_CUDA": "13.0", "FAKE_GPUS": "NVIDIA H100,NVIDIA A100", "CUDA_VISIBLE_DEVICES": "1"},
            "cuda",
            "torch 2.11.0 (CUDA 13.0), on NVIDIA A100 (9.0), CUDA_VISIBLE_DEVICES=1",
        ),
        (
            {"FAKE_CUDA": "13.0", "FAKE_GPUS": "NVIDIA H100,NVIDIA A100"},
            "cuda",
            "torch 2.11.0 (CUDA 13.0), on NVIDIA H100 (9.0), the first of 2 visible",
        ),
        (
            {"FAKE_HIP": "7.1", "FAKE_GPUS": "AMD Instinct MI300X"},
            "rocm",
            "torch 2.11.0 (ROCm 7.1), on AMD Instinct MI300X (9.0)",
        ),
        ({"FAKE_XPU": "1"}, "xpu", "torch 2.11.0, on the CPU"),
        ({"FAKE_MPS": "1"}, "mps", "torch 2.11.0, on the CPU"),
        ({}, "cpu", "torch 2.11.0, on the CPU"),
    ],
)
def test_the_framework_says_what_it_sees(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], platform: str, head: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    here = probe(sys.executable, "torch")
    assert (here.platform, here.sentences("auto")[0]) == (platform, head)


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize(("variable", "kind"), [("FAKE_XPU", "an Intel GPU (XPU)"), ("FAKE_MPS", "an Apple GPU (MPS)")])
def test_a_gpu_that_is_not_measured_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, kind: str) -> None:
    monkeypatch.setenv(variable, "1")
    (_, sentence) = probe(sys.executable, "torch").sentences("auto")
    assert sentence == f"torch sees {kind}, which the runners do not measure: runs are on the CPU"


def test_a_mig_instance_is_said_to_be_one() -> None:
    here = Target("torch", platform="cuda", gpus=({"name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"},))
    assert "MIG instance" in here.sentences("auto")[1]


def test_a_gpu_that_torch_does_not_see_is_named() -> None:
    here = Target("torch", "2.11.0+cpu", unused_gpu="NVIDIA H100")
    assert here.sentences("auto")[1] == "torch does not see the GPU here (NVIDIA H100): runs are on the CPU"
    with pytest.raises(RunnerError, match=r"torch sees no GPU here \(it is built for the CPU\): choose --device cpu"):
        here.check("cuda", tools=["own"])


def test_tools_of_nvidias_are_refused_on_amds_gpus() -> None:
    here = Target("torch", platform="rocm", built_for="ROCm 7.1", gpus=({"name": "AMD Instinct MI300X"},))
    here.check("auto", tools=["own"])
    with pytest.raises(RunnerError, match=r"nsys is of NVIDIA's GPUs and this torch is of AMD's \(ROCm 7.1\)"):
        here.check("auto", tools=["nsys", "own"])


@pytest.mark.parametrize(("visible", "name"), [(None, "first"), ("1,0", "1"), ("GPU-aaaa", "GPU-aaaa")])
def test_the_driver_is_asked_for_the_first_gpu_that_programs_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, name: str
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\ncase "$1" in --id=*) echo "${1#--id=}, 8.0";; *) echo "first, 9.0";; esac\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpu()[0] == name
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(RunnerError, match="CUDA_VISIBLE_DEVICES hides every GPU"):
        find_gpu()


def _started(_run: PlannedRun) -> int:
    raise AssertionError("nothing may run")


def test_a_framework_that_is_missing_is_said_once_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without the packages of this one
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    options = ["--workload", "zoo:mlp", "--python", str(python), "--out", str(tmp_path / "runs")]
    assert collect.main(options, start=_started) == 2
    sentence = f"torch is not installed in {python}: {python} -m pip install torch"
    assert capsys.readouterr().err == f"collect: {sentence}\n"
    assert not (tmp_path / "runs").exists()


def test_a_framework_that_does_not_load_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RunnerError, match=r"torch cannot be used in .*: OSError: libcudart.so.13: cannot open"):
        probe(sys.executable, "torch")


def _dry(capsys: pytest.CaptureFixture[str], *options: str, here: Target | None = None) -> list[str]:
    def ask(*_: Any) -> Target:  # noqa: ANN401
        assert here, "a dry run asks this machine for nothing"
        return here

    arguments = ["--dry-run", "--out", "runs", *options]
    assert collect.main(arguments, start=_started, ask=ask) == 0, capsys.readouterr().err
    return capsys.readouterr().out.splitlines()


def test_a_dry_run_is_for_a_gpu_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    nsys = ("--workload", "zoo:mlp", "--levels", "MLG", "--kernels", "nsys")
    assert "--trace=cuda,nvtx" in _dry(capsys, *nsys)[0]
    assert "--trace=nvtx " in _dry(capsys, *nsys, "--device", "cpu")[0]


@pytest.mark.slow
def test_counters_are_those_of_the_gpu_that_torch_sees(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--workload", "zoo:mlp", "--levels", "MLG+counters")
    for gpu in _TWO:
        of_this = _dry(capsys, *options, here=Target("torch", platform="cuda", gpus=(gpu,)))
        assert of_this == _dry(capsys, *options, "--chip", gpu["name"].split()[1])
    assert collect.main(["--dry-run", "--out", "runs", *options], ask=lambda *_: Target("torch")) == 2
    assert capsys.readouterr().err == "collect: no GPU is known here: name the chip (--chip)\n"


def test_work_on_a_gpu_warms_up_for_a_second_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    model = ("--workload", "zoo:mlp", "--levels", "M")
    assert " --warmup-seconds 1.0 " in _dry(capsys, *model)[0]
    assert " --warmup-seconds 0.0 " in _dry(capsys, *model, "--device", "cpu")[0]
    assert " --warmup-seconds 2.5 " in _dry(capsys, *model, "--warmup-seconds", "2.5")[0]
    assert " --warmup-seconds 0.0 " in _dry(capsys, "--script", "a.py", "--levels", "M")[0]  # it has only so many steps
    (counted, *_) = _dry(capsys, "--workload", "zoo:mlp", "--levels", "MLG+counters", "--chip", "H100")
    assert " --warmup-seconds 0.0 " in counted


def test_the_system_is_noted_before_the_runs(tmp_path: Path) -> None:
    def started(run: PlannedRun) -> int:
        assert json.loads((run.folder.parent / "system.json").read_text())["cpu"]
        return 1

    assert (
        collect.main(["--workload", "zoo:mlp", "--out", str(tmp_path)], start=started, ask=lambda *_: Target("torch"))
        == 1
    )


@pytest.mark.torch
def test_the_torch_here_is_asked() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert "PYTHONPATH" not in os.environ or Path(os.environ["PYTHONPATH"]).name != "packages"
    here = probe(sys.executable, "torch")
    assert (here.version, here.on_gpu("auto")) == (torch.__version__, torch.cuda.is_available())
