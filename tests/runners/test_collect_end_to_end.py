"""From a workload to a report, with real processes: models of the zoo, programs of one's own, and runs cut short."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.helpers.waiting import HANG_S, wait_until
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.run_set import read_run_set
from xsp_model import bundle

_REPO = Path(__file__).resolve().parents[2]
_ON_CPU = ("--device", "cpu", "--threads", "1")

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")


def _xsp(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from xsp.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False, timeout=600)


def _collect(out: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    done = _xsp("collect", "-o", out, *_ON_CPU, *options)
    assert done.returncode == 0, done.stderr
    return done


def _run_json(run_folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_folder / "run.json").read_text())
    return content


def _reported(runs: Path, folder: Path) -> tuple[pl.DataFrame, str]:
    """The overhead table of the merged runs, and their report."""
    for done in (
        _xsp("merge", runs, "-o", folder / "p.xsp"),
        _xsp("report", folder / "p.xsp", "-o", folder / "p.html"),
    ):
        assert done.returncode == 0, done.stderr
    return run(find("B02"), StepView.of(bundle.read(folder / "p.xsp"))).table, (folder / "p.html").read_text()


def test_resnet18_from_its_name_to_a_report_with_overhead_per_level(tmp_path: Path) -> None:
    options = ("--workload", "zoo:resnet18", "--levels", "M,ML,MLG", "--batch-size", "1", "--input-shape", "3x64x64")
    _collect(tmp_path / "r18", *options, "--steps", "4", "--warmup", "1")
    record = _run_json(tmp_path / "r18" / "mlg")
    assert record["model"]["name"] == "resnet18"
    assert record["model"]["source"] in {"torchvision", "timm", "transformers", "own"}
    assert (record["input_shape"], record["precision"], record["mode"], record["execution"]) == (
        [3, 64, 64],
        "fp32",
        "inference",
        "eager",
    )
    overhead, page = _reported(tmp_path / "r18", tmp_path)
    rows = {row["level"]: row for row in overhead.filter(scope="model").iter_rows(named=True)}
    assert list(rows) == ["layer", "kernel", "total"]
    assert rows["layer"]["overhead_ns"] + rows["kernel"]["overhead_ns"] == pytest.approx(rows["total"]["overhead_ns"])
    scopes = overhead.filter(level="kernel")["scope"].to_list()
    assert sum(scope.startswith("Conv2d") for scope in scopes) == 20  # 17 of 3 by 3 and 7 by 7, 3 of shortcuts
    assert "Profiling overhead" in page


def test_memory_of_layers_is_known_without_a_run_that_records_kernels(tmp_path: Path) -> None:
    _collect(tmp_path / "mlp", "--workload", "zoo:mlp", "--levels", "M,ML", "--steps", "2", "--warmup", "1")
    _reported(tmp_path / "mlp", tmp_path)
    frames = StepView.of(bundle.read(tmp_path / "p.xsp"))
    layers, types = run(find("A04"), frames).table, run(find("A07"), frames).table
    linear = layers.filter(pl.col("layer_type") == "Linear")
    assert linear["allocated_bytes"].min() > 0  # type: ignore[operator]
    assert types["allocated_bytes"].sum() == pytest.approx(layers["allocated_bytes"].sum())
    roles = dict(frames.trace.frame("runs").select("run_id", "role").iter_rows())
    recorded = frames.trace.frame("allocations")["run_id"].unique()
    assert [roles[run_id] for run_id in recorded] == ["layers"], "the run without a profiler stays clean"


def test_a_program_of_ones_own_from_its_steps_to_a_report(tmp_path: Path) -> None:
    script = _REPO / "tests" / "runners" / "train.py"
    options = ("--levels", "M,ML,MLG", "--script", script, "--steps", "5", "--warmup", "2", "--", "--lr", "0.1")
    _collect(tmp_path / "runs", *options)
    for level in ("m", "ml", "mlg"):
        record = _run_json(tmp_path / "runs" / level)
        assert (record["model"]["name"], record["batch_size"], len(record["step_durations_ns"])) == ("train", 16, 5)
        assert record["options"]["script"] == "./tests/runners/train.py"
        assert "precision" not in record
    overhead, _ = _reported(tmp_path / "runs", tmp_path)
    assert overhead.filter(scope="Linear_1").height == 1
    spans = bundle.read(tmp_path / "p.xsp").frame("spans")
    loading = spans.filter(pl.col("name").cast(pl.String) == "aten::randn")  # before the step, so no part of it
    steps = spans.filter(kind="step").select(
        "run_id", pl.col("start_ns").alias("begin"), (pl.col("start_ns") + pl.col("duration_ns")).alias("end")
    )
    assert loading.height > 0
    within = loading.join(steps, on="run_id").filter(pl.col("start_ns").is_between("begin", "end"))
    assert within.is_empty()


def test_a_program_that_marks_its_steps_runs_as_ever_without_us(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_REPO)}
    command = [sys.executable, str(_REPO / "tests" / "runners" / "train.py"), "x"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trained with x\n")


@pytest.mark.parametrize(
    ("levels", "program", "sentence"),
    [
        ("M,ML", "print('no steps')", "the script ended before all steps were recorded: mark each step by"),
        ("M", "import sys; sys.exit(3)", "the script ended itself with 3 before all steps were recorded"),
        ("ML", "raise ValueError('bad data')", "ValueError: bad data"),
    ],
)
def test_a_program_that_ends_early_is_on_record_and_the_rest_go_on(
    tmp_path: Path, levels: str, program: str, sentence: str
) -> None:
    (tmp_path / "p.py").write_text(program)
    done = _xsp("collect", "-o", tmp_path / "runs", *_ON_CPU, "--levels", levels, "--script", tmp_path / "p.py")
    assert done.returncode == 1
    for level in levels.lower().split(","):
        record = json.loads((tmp_path / "runs" / level / "error.json").read_text())
        assert record["error"].startswith(sentence)
        assert not (tmp_path / "runs" / level / "run.json").exists()


def test_the_folder_alone_works_where_there_is_no_xsp(tmp_path: Path) -> None:
    shutil.copytree(_REPO / "runners", tmp_path / "copied" / "runners")
    (tmp_path / "away").mkdir()
    program = (
        "import sys, runpy; import importlib.util as u; from importlib.abc import MetaPathFinder\n"
        "class No(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('xsp') and not name.startswith('xsp_runners.'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, No()); sys.argv = sys.argv[1:]\n"
        "sys.path[0] = ''; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = tmp_path / "copied" / "runners" / "collect.py"
    options = ["--workload", "zoo:mlp", "--levels", "M,ML", "--steps", "2", *_ON_CPU, "-o", str(tmp_path / "runs")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", program, str(script), *options]
    done = subprocess.run(
        command, cwd=tmp_path / "away", env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [_run_json(tmp_path / "runs" / level)["level"] for level in ("m", "ml")] == ["M", "ML"]


def test_precisions_and_executions_that_a_cpu_lacks_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for option, value, sentence in (
        ("--precision", "tf32", "tf32 is a precision of GPUs: choose --precision fp32 on the CPU"),
        ("--execution", "cudagraph", "a CUDA graph needs a GPU: choose --execution eager or compile on the CPU"),
    ):
        done = _xsp("collect", "-o", tmp_path, *_ON_CPU, "--workload", "zoo:mlp", "--levels", "M", option, value)
        assert done.returncode == 1
        assert json.loads((tmp_path / "m" / "error.json").read_text())["error"] == sentence


_HELD = """
import sys, time
from pathlib import Path
def step():
    if "ML" in sys.argv and not Path("go").exists():
        Path("under-way").touch()
        time.sleep(600)
def build(batch, device):
    return step
"""


def _started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`xsp collect` of a workload whose second level does not end, unless there is a file `go`."""
    (folder / "held.py").write_text(_HELD)
    script = str(_REPO / "runners" / "collect.py")
    command = [sys.executable, script, "-o", "runs", "--workload", "held:build", "--levels", "M,ML", *_ON_CPU]
    return subprocess.Popen(
        [*command, "--warmup", "1", "--steps", "2", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _children(pid: int) -> list[int]:
    """Processes that this one started and that still run."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_end_it_ends_what_it_started_and_resumes_later(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    process = _started(tmp_path)
    wait_until((tmp_path / "under-way").exists)
    first = (tmp_path / "runs" / "m" / "run.json").read_bytes()
    children = _children(process.pid)
    assert len(children) == 2  # the level and the sampler of the machine
    process.send_signal(sent)
    assert process.wait(HANG_S) == status
    process.communicate()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert not (tmp_path / "runs" / "ml" / "run.json").exists()
    assert len(_traces(tmp_path / "runs")) == 1
    (tmp_path / "go").touch()
    again = _started(tmp_path, "--resume")
    output, _ = again.communicate(timeout=HANG_S)
    assert again.returncode == 0
    assert output.splitlines()[0] == "M: runs/m/run.json is there already"
    assert (tmp_path / "runs" / "m" / "run.json").read_bytes() == first
    assert _run_json(tmp_path / "runs" / "ml")["level"] == "ML"


def _traces(runs: Path) -> list[Any]:
    from xsp_ingest.ingester import Options  # noqa: PLC0415

    return read_run_set(runs, Options())


_ON_A_FULL_DISK = ("sh", "-c", 'ulimit -f 32 && exec "$@"', "sh")
"""No file may grow beyond 16 KiB: writing more fails as on a full disk. A run.json stays below."""


def test_on_a_full_disk_what_was_finished_stays_and_the_rest_is_not_taken_for_whole(tmp_path: Path) -> None:
    script = str(_REPO / "runners" / "collect.py")
    options = ["--workload", "zoo:convnet", "--levels", "M,ML", "--steps", "2", *_ON_CPU, "-o", str(tmp_path / "runs")]
    command = [sys.executable, script, *options]
    done = subprocess.run(
        [*_ON_A_FULL_DISK, *command], cwd=_REPO, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1
    assert _run_json(tmp_path / "runs" / "m")["level"] == "M"
    record = json.loads((tmp_path / "runs" / "ml" / "error.json").read_text())
    assert record["error"] == "the profiler's trace is not there or cut off: is the disk of temporary files full?"
    assert {path.name for path in (tmp_path / "runs" / "ml").iterdir()} == {"error.json", "system_samples.jsonl"}
    assert "Traceback" not in done.stderr
    resumed = subprocess.run(
        [*command, "--resume"], cwd=_REPO, capture_output=True, text=True, check=False, timeout=300
    )
    assert resumed.returncode == 0, resumed.stderr
    assert len(_traces(tmp_path / "runs")) == 2


def test_a_compiled_model_runs_on_the_cpu(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    options = ("--workload", "zoo:mlp", "--levels", "M", "--execution", "compile", "--steps", "2")
    _collect(tmp_path / "runs", *options)
    assert _run_json(tmp_path / "runs" / "m")["execution"] == "compile"
