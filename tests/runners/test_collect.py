"""Collecting a run set: which processes are started, what is skipped, recorded and refused."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners import collect, run_folder, torch_levels
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets import level_process
from xsp_runners.sets.plan import trimmed_mean
from xsp_runners.sets.target import Target

if TYPE_CHECKING:
    from xsp_runners.sets.level_process import PlannedRun

_CPU = Target("torch", "2.11.0")
_REPO = Path(__file__).resolve().parents[2]
_NO_MEMORY = 2
_KILLED = "the run was ended by signal 9, as Linux does where memory is full"


class _Processes:
    """Stands in for the processes of the levels; those in `failing` end with that status and leave nothing."""

    def __init__(self, failing: dict[str, int] | None = None) -> None:
        self.failing = failing or {}
        self.started: list[str] = []
        self.memory_full = "certain"

    def __call__(self, run: PlannedRun) -> int:
        assert list(run.command[:2]) == [sys.executable, str(_REPO / "runners" / "torch_levels.py")]
        args = level_process.check_options(level_process._parser("level").parse_args(run.command[2:]))
        self.started.append(
            f"{args.level} of {args.batch_size}" if run.folder.name.startswith("m-batch") else args.level
        )
        if self.started[-1] in self.failing:
            return self._failed(run, self.failing[self.started[-1]])
        durations = [self.step_ns(args.batch_size)] * args.steps
        facts = {"schema_version": 1, "runner_level": args.level, "files": [], "step_durations_ns": durations}
        run_folder.put_json(args.out / "run.json", {**facts, "options": level_process.options_of(args)})
        return 0

    def step_ns(self, batch: int) -> int:
        """Twice the batch takes as long, up to 4; from there on, twice as long."""
        return 1_000_000 * max(1, batch // 4)

    def _failed(self, run: PlannedRun, status: int) -> int:
        if status == _NO_MEMORY:
            run_folder.put_error(run.folder, run.level, "CUDA out of memory", memory_full=self.memory_full)
        return status


def _collect(out: Path, *options: str, processes: _Processes | None = None) -> int:
    if "--workload" not in options and "--script" not in options:
        options = ("--workload", "zoo:convnet", *options)
    return collect.main(["--out", str(out), *options], start=processes or _Processes(), ask=lambda *_: _CPU)


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
    assert json.loads((tmp_path / "ml" / "error.json").read_text())["error"] == _KILLED
    assert f"collect: ML failed: {_KILLED}\n" in capsys.readouterr().err
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
    assert lines[2].endswith("--precision fp32 --threads 0 --settings own --recorder own --annotate none")
    assert processes.started == []
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--levels", "M,X"], "x is no level: choose of M, ML, MLG, MLG-serialised, MLG+counters"),
        (["--levels", ","], "nothing is no level: choose of M, ML, MLG, MLG-serialised, MLG+counters"),
        (["--batch", "0"], "--batch-size must be at least 1"),
        (
            ["--workload", "zoo:vgg"],
            "the zoo has no model 'vgg': choose vgg16, vgg19, ssd300_vgg16; runners/data/zoo.toml lists them",
        ),
        (["--workload", "zoo:own/vgg3"], "the zoo has no model 'vgg3' of its own: choose vgg16, vgg19, ssd300_vgg16"),
        (
            ["--batch-sizes", "4..1"],
            "--batch-sizes '4..1' cannot be read: give the smallest and the largest, such as 1..256",
        ),
        (["--batch-sizes", "1,x"], "--batch-sizes '1,x' cannot be read: give 1..256, for doublings, or 1,2,8"),
        (["--sweep", "--batch", "2"], "--batch-size is one, --batch-sizes and --sweep are many: give one of them"),
        (["--sweep", "--script", "a.py"], "a script decides on its own batch size, so that it cannot be swept"),
        (["--input-shape", "3x"], "--input-shape '3x' is no shape: give sizes such as 3x224x224, or 128 for tokens"),
        (["--out", "-"], "`-` is standard output, and a run set is a folder: name one with -o"),
        (["--", "--lr"], "'--lr' is left over: arguments after -- belong to a --script"),
        (
            ["--levels", "MLG+counters", "--device", "cpu"],
            "MLG+counters needs a GPU: leave it out of --levels on the CPU",
        ),
        (["--threads", "-1"], "--threads must be at least 0"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _collect(tmp_path / "out", *options) == 2
    assert capsys.readouterr().err == f"collect: {sentence}\n"
    assert not (tmp_path / "out").exists()


def test_a_sweep_ends_when_throughput_gains_little_and_the_other_levels_run_there(tmp_path: Path) -> None:
    processes = _Processes()
    assert _collect(tmp_path, "--batch-sizes", "1..256", "--levels", "M,ML,MLG", processes=processes) == 0
    assert processes.started == ["M of 1", "M of 2", "M of 4", "M of 8", "ML", "MLG"]
    record = json.loads((tmp_path / "sweep.json").read_text())
    assert (record["optimal_batch_size"], record["chosen_batch_size"], record["ended_by"]) == (4, 4, "saturation")
    assert record["throughput_per_s"] == {"1": 1000.0, "2": 2000.0, "4": 4000.0, "8": 4000.0}
    assert json.loads((tmp_path / "mlg" / "run.json").read_text())["options"]["batch-size"] == 4


def test_a_sweep_that_fills_memory_takes_the_largest_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = _Processes(failing={"M of 4": _NO_MEMORY})
    assert _collect(tmp_path, "--batch-sizes", "1..256", "--levels", "MLG", processes=processes) == 0
    assert processes.started == ["M of 1", "M of 2", "M of 4", "MLG"]
    record = json.loads((tmp_path / "sweep.json").read_text())
    assert (record["optimal_batch_size"], record["ended_by"], record["memory_full"]) == (2, "memory", "certain")
    assert "collect: M failed: CUDA out of memory\n" in capsys.readouterr().err


def test_a_sweep_that_likely_filled_memory_knows_no_optimum(tmp_path: Path) -> None:
    processes = _Processes(failing={"M of 4": _NO_MEMORY})
    processes.memory_full = "likely"
    assert _collect(tmp_path, "--batch-sizes", "1..256", "--levels", "M", processes=processes) == 0
    record = json.loads((tmp_path / "sweep.json").read_text())
    assert (record["optimal_batch_size"], record["ended_by"], record["memory_full"]) == (None, "memory", "likely")


def test_a_sweep_that_ends_before_it_saturates_knows_no_optimum(tmp_path: Path) -> None:
    assert _collect(tmp_path, "--batch-sizes", "1,2", "--levels", "M") == 0
    record = json.loads((tmp_path / "sweep.json").read_text())
    assert (record["optimal_batch_size"], record["chosen_batch_size"], record["ended_by"]) == (None, 2, "range")


def test_a_sweep_of_which_nothing_ran_runs_no_other_level(tmp_path: Path) -> None:
    processes = _Processes(failing={"M of 1": 1})
    assert _collect(tmp_path, "--sweep", processes=processes) == 1
    assert processes.started == ["M of 1"]


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    _collect(tmp_path, "--batch-sizes", "1..2", "--levels", "M")
    again = _Processes()
    assert _collect(tmp_path, "--batch-sizes", "1..256", "--levels", "M", "--resume", processes=again) == 0
    assert again.started == ["M of 4", "M of 8"]


@pytest.mark.parametrize(
    ("values", "mean"), [([7], 7.0), ([1, 9, 100], 9.0), ([0, 10, 20, 30, 900], 20.0), ([4, 2], 3.0)]
)
def test_the_mean_of_a_sweep_is_trimmed_as_the_analyses_do(values: list[int], mean: float) -> None:
    assert trimmed_mean(values) == mean


def test_a_dry_run_says_what_is_set_for_a_serialised_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _collect(tmp_path, "--dry-run", "--levels", "MLG-serialised") == 0
    assert capsys.readouterr().out.startswith("env CUBLAS_WORKSPACE_CONFIG=:4096:8 CUDA_LAUNCH_BLOCKING=1 ")


def test_a_dry_run_of_a_script_keeps_its_arguments_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--dry-run", "--levels", "M", "--script", "train.py", "--", "--name", "it's")
    assert _collect(tmp_path, *options) == 0
    line = capsys.readouterr().out.strip()
    assert line.endswith("""-- --name 'it'"'"'s'""")
    assert shlex.split(line)[-3:] == ["--", "--name", "it's"]


def test_tools_are_put_around_the_level_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--dry-run", "--levels", "M,MLG,MLG+counters", "--kernels", "nsys", "--chip", "H100", "--device", "cuda")
    assert _collect(tmp_path, *options) == 0
    model, kernels, *counters = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert "--recorder=none" not in " ".join(model)
    assert any(argument.endswith("nsys") for argument in kernels)
    assert " ".join(kernels).endswith("--recorder none --annotate nvtx")
    assert all("--nvtx-include" in command and "step" in command for command in counters)
    folders = [command[command.index("--log-file") + 1] for command in counters]
    assert len(set(folders)) == len(folders) > 1


def test_an_interrupt_ends_the_set(tmp_path: Path) -> None:
    def interrupted(_run: PlannedRun) -> int:
        raise KeyboardInterrupt

    assert (
        collect.main(["--workload", "zoo:mlp", "--out", str(tmp_path)], start=interrupted, ask=lambda *_: _CPU) == 130
    )
    assert [path.name for path in tmp_path.rglob("*.json")] == ["system.json"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunnerError, match="cannot be written"):
        run_folder.put(tmp_path / "file" / "run.json", b"")


def test_no_torch_is_loaded_to_start_the_levels() -> None:
    program = "import sys, xsp_runners.collect; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=_REPO, check=False).returncode == 0


def test_xsp_hands_over_to_the_runner(tmp_path: Path) -> None:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
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


def test_arguments_of_a_script_reach_the_runner_through_the_command(tmp_path: Path) -> None:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
    options = ["--script", "train.py", "--levels", "M", "--dry-run", "-o", str(tmp_path), "--", "--lr", "--", "3"]
    done = subprocess.run(
        [sys.executable, "-c", program, "collect", *options], cwd=_REPO, capture_output=True, text=True, check=False
    )
    assert shlex.split(done.stdout)[-4:] == ["--", "--lr", "--", "3"]


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
            ("tests.runners.workload:failing", "ValueError: no room for 8 inputs on the cpu"),
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
        record = json.loads((tmp_path / "error.json").read_text())
        assert (record["level"], record["status"], record["error"], record["batch_size"]) == (
            "M",
            "failed",
            sentence,
            8,
        )
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


def _level(out: Path, level: str, *options: str) -> int:
    return torch_levels.main(["--level", level, "--device", "cpu", *options, "--out", str(out)])
