"""What runs beside the runs of a set: samples of power in run.json, and what the machine is."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from tests.helpers.waiting import HANG_S, wait_until
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run
from xsp_runners import collect, nvml, run_folder, system_samples
from xsp_runners.sets.collection import note_system, power_between
from xsp_runners.sets.target import Target
from xsp_runners.tools import sampling

if TYPE_CHECKING:
    from xsp_runners.sets.level_process import PlannedRun


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for NVML in the sampler's process, and runs that are taken to be on a GPU."""
    packages = tmp_path / "packages"
    packages.mkdir()
    shutil.copy(Path(__file__).with_name("fake_pynvml.py"), packages / "pynvml.py")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sampling, "_END_SECONDS", HANG_S)


def _process(run: PlannedRun) -> int:
    """Stands in for a level process: a step with a kernel on GPU 0, as long as three samples take, and its run.json."""
    begun = time.time_ns()
    samples = run.folder / nvml.NAME
    if samples.exists():  # the sampler begins before the run
        line_count = samples.read_text().count("\n") + 2 * 4
        wait_until(lambda: samples.read_text().count("\n") >= line_count)
    trace = KinetoTrace(baseTimeNanoseconds=begun)
    trace.step(1, 0, time.time_ns() - begun)
    trace.operator("aten::mm", 1_000, 50_000)
    trace.launch("gemm", 2_000, 60_000, 1_000_000)
    run.folder.mkdir(parents=True, exist_ok=True)
    files = []
    if run.level != "M":
        (run.folder / "trace.json").write_bytes(trace.to_bytes())
        files = [{"path": "trace.json", "format": "torch_profiler"}]
    facts = {"schema_version": 1, "level": run.level, "model": {"name": "m"}, "framework": {"name": "pytorch"}}
    measured = {"batch_size": 1, "device": {"name": "Made-up GPU"}, "steps": 1, "step_durations_ns": [200_000_000]}
    measured["recorded_unix_ns"] = [begun, time.time_ns()]
    description = {"runner_level": run.level, "options": run_folder.public_options(run.options), "files": files}
    run_folder.put_json(run.folder / "run.json", {**facts, **measured, **description})
    return 0


_GPU = Target("torch", platform="cuda", gpus=({"name": "Made-up GPU", "capability": "9.0"},))


def _collect(out: Path, *options: str) -> int:
    common = ["--workload", "zoo:mlp", "--device", "cuda", "--system", "no", "--out", str(out)]
    return collect.main([*common, *options], start=_process, ask=lambda *_: _GPU)


@pytest.mark.usefixtures("sampled")
def test_runs_on_a_gpu_have_samples_of_power_in_their_trace(tmp_path: Path) -> None:
    assert _collect(tmp_path / "set", "--levels", "M,MLG") == 0
    files = json.loads((tmp_path / "set" / "mlg" / "run.json").read_text())["files"]
    assert files[1:] == [{"path": "nvml.jsonl", "format": "nvml_samples"}]
    counters = read_run(tmp_path / "set" / "mlg" / "run.json", Options()).frame("counters")
    power = counters.filter(pl.col("counter").cast(pl.String) == "power_w")
    assert power.height >= 3
    assert set(power["device_id"]) == {0}  # the other GPU was not used


@pytest.mark.usefixtures("sampled")
def test_power_of_a_run_without_a_trace_is_summed_up_over_its_steps(tmp_path: Path) -> None:
    assert _collect(tmp_path / "set", "--levels", "M") == 0
    facts = json.loads((tmp_path / "set" / "m" / "run.json").read_text())
    assert facts["files"] == []  # without a profiler there is no span that samples could be of
    (first, *_) = facts["power"]
    assert first["device"] == 0
    assert first["samples"] >= 3
    assert first["mean_power_w"] >= 100
    assert (tmp_path / "set" / "m" / facts["power_samples"]).is_file()


def test_power_is_that_between_two_moments(tmp_path: Path) -> None:
    values = [(0, 900.0), (10, 100.0), (20, 200.0), (40, 100.0), (50, 900.0)]
    samples = [{"time_ns": time_s * 1_000_000_000, "device": 1, "power_w": power} for time_s, power in values]
    lines = [{"format": "xsp nvml samples"}, *samples, {"time_ns": 15_000_000_000, "device": 0, "power_w": 1.0}]
    (tmp_path / "nvml.jsonl").write_text("\n".join(map(json.dumps, lines)))
    # (100 + 200) / 2 * 10 s + (200 + 100) / 2 * 20 s = 4500 J in 30 s; of GPU 0 there is one sample only
    assert power_between(tmp_path / "nvml.jsonl", 10_000_000_000, 40_000_000_000) == [
        {"device": 1, "mean_power_w": 150.0, "energy_j": 4500.0, "covered_ns": 30_000_000_000, "samples": 3}
    ]


@pytest.mark.usefixtures("sampled")
def test_resume_takes_a_run_with_samples_for_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _collect(tmp_path / "set", "--levels", "MLG") == 0
    assert _collect(tmp_path / "set", "--levels", "MLG", "--resume") == 0
    assert "is there already" in capsys.readouterr().out


@pytest.mark.usefixtures("sampled")
def test_power_is_not_sampled_where_it_is_not_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "mlg"
    folder.mkdir(parents=True)
    (folder / "nvml.jsonl").write_text("of yesterday\n" * 5)
    assert _collect(tmp_path / "set", "--levels", "MLG", "--power", "no") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "trace.json"]


@pytest.mark.usefixtures("sampled")
def test_a_gpu_that_cannot_be_sampled_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_NVML", "absent")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _collect(tmp_path / "set", "--levels", "MLG") == 0
    assert "collect: no samples of power: the GPU's power cannot be sampled: NVML says: " in capsys.readouterr().err
    assert len(json.loads((tmp_path / "set" / "mlg" / "run.json").read_text())["files"]) == 1
    assert _collect(tmp_path / "set", "--levels", "MLG", "--power", "yes") == 2


@pytest.mark.torch
def test_on_the_cpu_nothing_is_sampled_and_the_machine_is_noted(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    out = tmp_path / "set"
    arguments = ["--workload", "zoo:mlp", "--device", "cpu", "--levels", "MLG", "--out", str(out)]
    assert collect.main(arguments, start=_process) == 0
    assert not (out / "mlg" / "nvml.jsonl").exists()
    facts = json.loads((out / "system.json").read_text())
    assert facts["cpu"]["logical_cores"] > 0
    assert "tools" not in facts


def test_the_packages_are_those_of_the_python_that_runs_the_work(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    note_system(tmp_path / "set", str(python))
    assert json.loads((tmp_path / "set" / "system.json").read_text())["schema_version"] == 1
    with pytest.raises(run_folder.RunnerError, match="could not say what it has"):
        note_system(tmp_path / "set", str(tmp_path / "no-python"))


@pytest.mark.only_on("linux", reason="/proc is Linux's")
def test_the_machine_is_sampled_beside_runs_that_have_a_trace(tmp_path: Path) -> None:
    options = ("--levels", "M,MLG", "--power", "no", "--system", "yes")
    assert _collect(tmp_path / "set", *options) == 0
    assert (tmp_path / "set" / "mlg" / system_samples.NAME).exists()
    assert not (tmp_path / "set" / "m" / system_samples.NAME).exists()
