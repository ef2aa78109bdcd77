"""Ranks of one job: what each is told of its place, where its runs are left, and a job of two under torchrun."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.waiting import HANG_S
from xsp.opening import load
from xsp.reading import Reading
from xsp_runners import collect, run_folder
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.level_process import Rank, main, rank_here
from xsp_runners.sets.target import Target

if TYPE_CHECKING:
    from xsp_runners.sets.level_process import PlannedRun

_REPO = Path(__file__).resolve().parents[2]
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def _set(monkeypatch: pytest.MonkeyPatch, *values: str | None) -> None:
    for name, value in zip(_VARIABLES, values, strict=True):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "rank"),
    [
        ((None, None, None), None),
        (("0", "0", "1"), None),  # torchrun with one process: nobody to talk to
        (("5", "1", "8"), Rank(5, 1, 8)),
        (("1", None, "2"), Rank(1, 0, 2)),
    ],
)
def test_a_process_knows_its_place(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str | None, ...], rank: Rank | None
) -> None:
    _set(monkeypatch, *values)
    assert rank_here() == rank


@pytest.mark.parametrize("values", [("2", "0", "2"), ("x", "0", "2")])
def test_a_place_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...]) -> None:
    _set(monkeypatch, *values)
    with pytest.raises(RunnerError, match="RANK"):
        rank_here()


def test_each_rank_leaves_a_run_set_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, "1", "1", "2")
    options = ["--level", "ML", "--workload", "mine:step", "--out", str(tmp_path / "ml")]
    assert main("level", lambda _: {"steps": 1}, options) == 0
    facts = json.loads((tmp_path / "rank-1" / "ml" / "run.json").read_text())
    assert (facts["rank"], facts["local_rank"], facts["world_size"]) == (1, 1, 2)
    assert main("level", lambda _: {}, [*options, "--warmup-seconds", "1"]) == 2
    assert "different numbers of steps" in json.loads((tmp_path / "rank-1" / "ml" / "error.json").read_text())["error"]


class _Job:
    """Stands in for torchrun; the last rank fails at a level in `failing`."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.started: list[str] = []

    def __call__(self, run: PlannedRun) -> int:
        self.started.append(run.level)
        assert list(run.command[1:6]) == ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
        for rank, folder in enumerate(run.folders):
            if run.level != self.failing or rank < 2:
                facts = {"schema_version": 1, "runner_level": run.level, "files": []}
                run_folder.put_json(folder / "run.json", {**facts, "options": run_folder.public_options(run.options)})
        return 1 if run.level == self.failing else 0


def _collect(out: Path, *options: str, job: Any = None) -> int:  # noqa: ANN401
    arguments = ["--nproc-per-node", "3", "--out", str(out), *options]
    return collect.main(arguments, start=job or _Job(), ask=lambda *_: Target("torch"))


def test_a_job_is_there_when_all_its_ranks_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = ("--script", "train.py", "--levels", "M,MLG")
    assert _collect(tmp_path, *script, job=_Job(failing="MLG")) == 1
    assert capsys.readouterr().out.splitlines() == [f"M: {tmp_path}/rank-{n}/m/run.json" for n in range(3)]
    assert sorted(path.parent.parent.name for path in tmp_path.rglob("error.json")) == ["rank-2"]
    again = _Job()
    assert _collect(tmp_path, *script, "--resume", job=again) == 0
    assert again.started == ["MLG"]
    assert not list(tmp_path.rglob("error.json"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--workload", "zoo:mlp"], "models of the zoo do not talk to each other"),
        (["--script", "a.py", "--kernels", "nsys"], "tools are put around a single process"),
        (["--script", "a.py", "--warmup-seconds", "1"], "different numbers of steps"),
        (["--workload", "mine:step", "--sweep"], "a sweep is of a single process"),
        (["--workload", "mine:step", "--nproc-per-node", "1"], "must be at least 2"),
    ],
)
def test_what_is_for_one_process_is_refused(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _collect(tmp_path / "out", *options) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_ranks_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _collect(tmp_path, "--dry-run", "--levels", "M", "--script", "train.py") == 0
    command = shlex.split(capsys.readouterr().out)
    assert command[:6] == [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    assert command[6].endswith("torch_levels.py")


_PROGRAM = """
import torch
import torch.distributed as dist
from xsp_runners.steps import xsp_step

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
for _ in range(8):
    batch = torch.randn(4, 8)
    with xsp_step(batch_size=4):
        model(batch).sum().backward()
"""


@pytest.mark.torch
def test_two_ranks_under_torchrun_are_read_as_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "ddp.py").write_text(_PROGRAM)
    command = [sys.executable, str(_REPO / "runners" / "collect.py"), "--script", str(tmp_path / "ddp.py")]
    options = ["--levels", "M,MLG", "--steps", "3", "--warmup", "2", "--device", "cpu", "--nproc-per-node", "2"]
    command += [*options, "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    runs = [json.loads((tmp_path / "runs" / f"rank-{n}" / "m" / "run.json").read_text()) for n in range(2)]
    assert [(each["rank"], each["world_size"], len(each["step_durations_ns"])) for each in runs] == [
        (0, 2, 3),
        (1, 2, 3),
    ]
    profile = load([str(tmp_path / "runs")], Reading(), lambda _: None)
    assert profile.frame("runs").select("rank", "world_size", "role").rows() == [
        (0, 2, "model"),
        (0, 2, "kernels"),
        (1, 2, "model"),
        (1, 2, "kernels"),
    ]
    assert "M, rank 1: step 3 of 3, " in done.stderr
