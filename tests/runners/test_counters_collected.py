"""Counters in a run set: asked for once before anything runs, and not again after a refusal that holds for all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.runners.fake_tool import write_tool
from xsp_runners import collect, ncu, run_folder
from xsp_runners.ncu import NO_PERMISSION, refusal
from xsp_runners.sets.target import Target
from xsp_runners.tools.counter_lists import architecture_of

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_runners.sets.level_process import PlannedRun

_GPU = Target("torch", "2.11.0", "cuda", "CUDA 13.0", ({"name": "NVIDIA H100", "capability": "9.0"},))
_DENIED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
_ODD = "==ERROR== Something else\n"


def _ncu_with(tmp_path: Path, counters: set[str]) -> str:
    listed = "".join(f"{name.partition('.')[0]}  Counter\n" for name in sorted(counters))
    body = (
        "if '--list-chips' in arguments: print('gh100')\n"
        "elif '--version' in arguments: print('Version 2025.3.0.0 (build 1)')\n"
        f"else: print({listed!r})"
    )
    return write_tool(tmp_path / "ncu", body)


def _all() -> set[str]:
    return {name for group in architecture_of(device="H100").groups.values() for name in group}


def _collected(out: Path, started: list[str], logs: dict[str, str], *options: str) -> int:
    def start(run: PlannedRun) -> int:
        started.append(run.folder.name)
        run_folder.put(run.folder / "counters.csv", logs.get(run.folder.name, _ODD).encode())
        run_folder.put_json(run.folder / "level.json", {"level": "MLG"})
        return 1

    arguments = ["--workload", "zoo:mlp", "--levels", "MLG+counters", "--out", str(out), *options]
    return collect.main(arguments, start=start, ask=lambda *_: _GPU)


@pytest.fixture
def _may_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ncu, "refusal", lambda: None)
    monkeypatch.setenv("XSP_NCU", _ncu_with(tmp_path, _all()))


@pytest.mark.usefixtures("_may_read")
def test_after_a_refusal_the_other_groups_do_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started: list[str] = []
    assert _collected(tmp_path / "set", started, {"mlg-counters-flops": _DENIED}) == 1
    assert started == ["mlg-counters-flops"]
    errors = {path.parent.name: json.loads(path.read_text())["error"] for path in tmp_path.rglob("error.json")}
    not_run = f"not run, as ncu was refused before: {NO_PERMISSION}"
    assert errors == {
        "mlg-counters-flops": f"{NO_PERMISSION}; it ended with status 1",
        **dict.fromkeys(("mlg-counters-memory", "mlg-counters-tensor", "mlg-counters-activity"), not_run),
    }
    assert capsys.readouterr().err.count("collect: MLG+counters failed: ") == 4


@pytest.mark.usefixtures("_may_read")
def test_after_another_failure_they_do(tmp_path: Path) -> None:
    started: list[str] = []
    assert _collected(tmp_path / "set", started, {}, "--counters", "roofline") == 1
    assert started == ["mlg-counters-flops", "mlg-counters-memory"]


@pytest.mark.usefixtures("_may_read")
def test_a_counter_that_ncu_lacks_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XSP_NCU", _ncu_with(tmp_path, _all() - {"lts__t_bytes.sum"}))
    started: list[str] = []
    assert _collected(tmp_path / "set", started, {}) == 2
    assert (started, capsys.readouterr().err) == ([], "collect: this ncu has no lts__t_bytes.sum for GH100\n")
    assert not (tmp_path / "set").exists()


def test_permission_is_asked_for_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, process = tmp_path / "params", tmp_path / "status"
    driver.write_text("RmProfilingAdminOnly: 1\n")
    process.write_text("CapEff:\t0000000000000000\n")
    monkeypatch.setattr(ncu, "refusal", lambda: refusal(driver, process))
    monkeypatch.setenv("XSP_NCU", _ncu_with(tmp_path, _all()))
    started: list[str] = []
    assert _collected(tmp_path / "set", started, {}, "--levels", "M,MLG+counters") == 2
    assert (started, capsys.readouterr().err) == ([], f"collect: {NO_PERMISSION}\n")


def test_the_chip_is_that_of_the_gpu_the_work_runs_on() -> None:
    assert ncu.plan(gpu=_GPU.gpu).architecture.chips == ("GH100",)
    other = replace(_GPU, gpus=({"name": "NVIDIA B200", "capability": "10.0"},))
    assert ncu.plan(gpu=other.gpu).architecture.chips[0] == "GB100"
