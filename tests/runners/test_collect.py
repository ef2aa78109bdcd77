"""Collecting a run set: which processes are started, what is skipped, recorded and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners import collect, level_process, run_folder, torch_levels
from runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPO = Path(__file__).resolve().parents[2]


class _Processes:
    """Stands in for the processes of the levels; those in `failing` end with that status and leave nothing."""

    def __init__(self, failing: dict[str, int] | None = None) -> None:
        self.failing = failing or {}
        self.started: list[str] = []

    def __call__(self, command: Sequence[str]) -> int:
        assert list(command[:2]) == [sys.executable, str(_REPO / "runners" / "torch_levels.py")]
        args = level_process.checked(level_process._parser("level").parse_args(command[2:]))
        self.started.append(args.level)
        if args.level in self.failing:
            return self.failing[args.level]
        facts = {"schema_version": 1, "runner_level": args.level, "files": []}
        run_folder.put_json(args.out / "run.json", {**facts, "options": level_process.options_of(args)})
        return 0


def _collect(out: Path, *options: str, processes: _Processes | None = None) -> int:
    if "--workload" not in options and "--script" not in options:
        options = ("--workload", "zoo:convnet", *options)
    return collect.main(["--out", str(out), *options], start=processes or _Processes())


def test_each_level_is_run_once_and_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    processes = _Processes()
    assert _collect(tmp_path, "--levels", "ML, m,MLG,ml", processes=processes) == 0
    assert processes.started == ["ML", "M", "MLG"]
    assert capsys.readouterr().out.splitlines() == [
        f"{level}: {tmp_path / level.lower() / 'run.json'}" for level in ("ML", "M", "MLG")
    ]


def test_a_run_that_fails_is_recorded_and_the_rest_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    processes = _Processes(failing={"M": 3, "ML": -9})
    assert _collect(tmp_path, processes=processes) == 1
    assert processes.started == ["M", "ML", "MLG"]
    assert json.loads((tmp_path / "m" / "error.json").read_text())["error"] == "the run ended with status 3"
    assert json.loads((tmp_path / "ml" / "error.json").read_text())["error"] == "the run was ended by signal 9"
    assert "collect: ML failed: the run was ended by signal 9\n" in capsys.readouterr().err
    assert (tmp_path / "mlg" / "run.json").is_file()


def test_resume_runs_only_what_is_missing(tmp_path: Path) -> None:
    _collect(tmp_path, processes=_Processes(failing={"ML": 1}))
    again = _Processes()
    assert _collect(tmp_path, "--resume", processes=again) == 0
    assert again.started == ["ML"]
    assert not (tmp_path / "ml" / "error.json").exists()


def test_resume_with_other_options_runs_anew(tmp_path: Path) -> None:
    _collect(tmp_path, "--levels", "M", "--batch", "4")
    again = _Processes()
    assert _collect(tmp_path, "--levels", "M", "--batch", "5", "--resume", processes=again) == 0
    assert again.started == ["M"]


def test_without_resume_everything_is_run_again(tmp_path: Path) -> None:
    _collect(tmp_path, "--levels", "M")
    again = _Processes(failing={"M": 1})
    assert _collect(tmp_path, "--levels", "M", processes=again) == 1
    assert not (tmp_path / "m" / "run.json").exists()


def test_a_run_whose_files_are_gone_is_not_complete(tmp_path: Path) -> None:
    facts = {"schema_version": 1, "runner_level": "ML", "options": {}, "files": [{"path": "trace.json.gz"}]}
    run_folder.put_json(tmp_path / "run.json", facts)
    assert not run_folder.is_complete(tmp_path, "ML", {})
    (tmp_path / "trace.json.gz").touch()
    assert run_folder.is_complete(tmp_path, "ML", {})


@pytest.mark.parametrize("text", ["", "[1]", '{"schema_version": 1, "lev'])
def test_half_a_run_json_is_not_complete(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert not run_folder.is_complete(tmp_path, "M", {})


def test_dry_run_prints_commands_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "two words"
    processes = _Processes()
    assert _collect(out, "--dry-run", "--steps", "7", "--workload", "mine:step", processes=processes) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert f"runners/torch_levels.py --level M --out '{out}/m' --workload mine:step" in lines[0]
    assert lines[2].endswith("--precision fp32 --threads 0 --seed 0 --recorder own --annotate none")
    assert processes.started == []
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--levels", "M,X"], "x is no level: choose of M, ML, MLG, MLG-serialised"),
        (["--levels", ","], "nothing is no level: choose of M, ML, MLG, MLG-serialised"),
        (["--batch", "0"], "--batch-size must be at least 1"),
        (["--threads", "-1"], "--threads must be at least 0"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _collect(tmp_path / "out", *options) == 2
    assert capsys.readouterr().err == f"collect: {sentence}\n"
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_the_set(tmp_path: Path) -> None:
    def interrupted(_command: Sequence[str]) -> int:
        raise KeyboardInterrupt

    assert collect.main(["--workload", "zoo:mlp", "--out", str(tmp_path)], start=interrupted) == 130
    assert list(tmp_path.rglob("*.json")) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunnerError, match="cannot be written"):
        run_folder.put(tmp_path / "file" / "run.json", b"")


def test_no_torch_is_loaded_to_start_the_levels() -> None:
    program = "import sys, runners.collect; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=_REPO, check=False).returncode == 0


def test_xsp_hands_over_to_the_runner(tmp_path: Path) -> None:
    program = "import sys; from xsp_cli.main import main; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        program,
        "collect",
        "--workload",
        "zoo:mlp",
        "--levels",
        "ML",
        "--dry-run",
        "-o",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.count("torch_levels.py --level ML") == 1
    refused = subprocess.run([*command, "--batch", "0"], cwd=_REPO, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr) == (2, "collect: --batch-size must be at least 1\n")


@pytest.fixture(name="torch")
def fixture_torch(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (not installed everywhere)
    """The module, where it is installed."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.torch
@pytest.mark.usefixtures("torch")
class TestLevel:
    @pytest.mark.parametrize(
        ("workload", "sentence"),
        [
            ("tests.runners.workload:broken", "ValueError: no room for 8 inputs on the cpu"),
            (
                "tests.runners.workload:not_a_step",
                "the workload tests.runners.workload:not_a_step must return a function that runs one step",
            ),
            ("tests.runners.workload:gone", "the workload's module tests.runners.workload has no function gone"),
            ("no_such:step", "the workload no_such:step cannot be imported: No module named 'no_such'"),
        ],
    )
    def test_a_workload_that_fails_leaves_its_sentence(self, tmp_path: Path, workload: str, sentence: str) -> None:
        assert _level(tmp_path, "M", "--workload", workload) == 2
        told = json.loads((tmp_path / "error.json").read_text())
        assert (told["level"], told["status"], told["error"], told["batch_size"]) == ("M", "failed", sentence, 8)
        assert not (tmp_path / "run.json").exists()

    def test_a_failure_names_nobodys_folders(self) -> None:
        assert level_process.sentence_of(OSError(f"{Path.home()}/data is gone\nmore")) == "OSError: ~/data is gone"

    def test_a_serialised_level_needs_a_gpu(self, tmp_path: Path) -> None:
        assert _level(tmp_path, "MLG-serialised", "--workload", "mlp") == 2
        assert "needs a GPU" in json.loads((tmp_path / "error.json").read_text())["error"]

    def test_the_model_level_has_times_and_no_files(self, tmp_path: Path) -> None:
        assert _level(tmp_path, "M", "--workload", "mlp", "--steps", "4", "--batch", "2") == 0
        facts = json.loads((tmp_path / "run.json").read_text())
        assert (facts["level"], facts["files"], facts["deepest_level"]) == ("M", [], "model")
        assert len(facts["step_durations_ns"]) == facts["steps"] == 4
        assert facts["settings"]["cudnn_benchmark"] is False
        assert [file.name for file in tmp_path.iterdir()] == ["run.json"]

    def test_every_module_waits_for_the_device_while_layers_are_measured(
        self,
        torch: Any,  # noqa: ANN401
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        waits: list[int] = []
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        with torch_levels._waiting_layers(torch):
            model(torch.ones(1, 2))
        assert len(waits) == 3
        model(torch.ones(1, 2))
        assert len(waits) == 3


def _level(out: Path, level: str, *options: str) -> int:
    return torch_levels.main(["--level", level, "--device", "cpu", *options, "--out", str(out)])
