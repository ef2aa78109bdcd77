"""The nsys runner: its commands, what it makes of nsys' answers, and real recordings on the CPU."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import polars as pl
import pytest

from tests.helpers.nsys_recording import heard, record
from tests.helpers.nsys_tool import nsys as real_nsys
from tests.runners.fake_tool import write_tool
from xsp_analyze.merge.merge import merge
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_runners import nsys as runner
from xsp_runners.nsys import ASSUMED, Nsys, export_command, profile_command
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets import plan
from xsp_runners.tools.programs import version_of

_OLD = Nsys("nsys", (2020, 3), frozenset({"--trace", "--capture-range"}), frozenset({"cuda", "nvtx", "osrt"}))
_NEW = Nsys("nsys", (2025, 1), ASSUMED.switches, frozenset(), frozenset({"autograd-nvtx", "autograd-shapes-nvtx"}))
_HELP = """usage: nsys profile
\\t-t, --trace=

\\t   Possible values are 'cuda', 'nvtx',
\\t   'osrt' or 'none'.
\\t   Select the APIs.
\\t--pytorch=

\\t   Possible values are 'none', 'autograd-nvtx' or 'functions-trace'.
"""


def test_the_command_records_the_device_and_neither_samples_nor_context_switches() -> None:
    assert profile_command(["python", "train.py"], Path("out")) == [
        "nsys",
        "profile",
        "--trace=cuda,nvtx,cudnn,cublas",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--force-overwrite=true",
        "--output=out/trace",
        "python",
        "train.py",
    ]


def test_on_the_cpu_nothing_of_cuda_is_asked_for() -> None:
    command = profile_command(["true"], Path("out"), on_gpu=False, memory=True)
    assert "--trace=nvtx" in command
    assert not [argument for argument in command if "cuda" in argument]


def test_an_old_nsys_gets_only_what_it_has() -> None:
    command = profile_command(["true"], Path("out"), nsys=_OLD, memory=True, capture="cudaProfilerApi")
    assert "--trace=cuda,nvtx" in command
    assert "--capture-range=cudaProfilerApi" in command
    assert not [argument for argument in command if argument.startswith(("--cuda-", "--capture-range-end"))]


def test_calls_of_the_operating_system_are_recorded_where_asked_for() -> None:
    assert "--trace=nvtx,osrt" in profile_command(["true"], Path("out"), on_gpu=False, os_calls=True)


def test_a_captured_range_does_not_end_the_program() -> None:
    assert "--capture-range-end=stop" in profile_command(["true"], Path("out"), capture="cudaProfilerApi")


def test_operators_are_annotated_with_shapes_where_nsys_can() -> None:
    assert "--pytorch=autograd-shapes-nvtx" in profile_command(["true"], Path("out"), nsys=_NEW, operators=True)
    with pytest.raises(RunnerError, match=r"nsys 2024\.5 or newer"):
        profile_command(["true"], Path("out"), operators=True)


def test_a_per_cent_sign_in_the_folder_is_not_a_pattern() -> None:
    assert "--output=50%%/trace" in profile_command(["true"], Path("50%"))


def test_versions() -> None:
    assert version_of("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0") == (2023, 4, 4)
    assert version_of("no idea") is None


def test_what_nsys_can_is_read_from_its_help(tmp_path: Path) -> None:
    body = f"print({_HELP!r}.replace('\\\\t', '\\t') if '--help' in arguments else 'version 2025.3.1')"
    tool = Nsys.locate(write_tool(tmp_path / "nsys", body))
    assert tool.version == (2025, 3, 1)
    assert tool.traces == {"cuda", "nvtx", "osrt", "none"}
    assert tool.pytorch == {"none", "autograd-nvtx", "functions-trace"}
    assert {"--trace", "--pytorch"} <= tool.switches


def test_another_program_is_not_taken_for_nsys(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="does not answer as nsys does"):
        Nsys.locate(write_tool(tmp_path / "nsys", "print('hello')"))


def test_without_nsys_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("XSP_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner.main(["-o", str(tmp_path / "out"), "--", sys.executable, "-V"]) == 2
    assert "nsys: nsys is not on the PATH: install it, or say where it is with $XSP_NSYS\n" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert runner.main(["--dry-run", "-o", "out", "--", sys.executable, "-V"]) == 0
    assert capsys.readouterr().out.startswith("nsys profile --trace=cuda,nvtx,cudnn,cublas ")


def test_a_program_that_is_not_there_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["-o", str(tmp_path), "--", "no-such-program"]) == 2
    assert runner.main(["-o", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "the program 'no-such-program' is not there" in err
    assert "what should run?" in err


def _recorded(folder: Path, files: dict[str, bytes], *, export: int = 0) -> runner.Recorded:
    """What `record` says when nsys leaves these files, and `nsys export` ends with this status."""

    def start(command: list[str]) -> int:
        assert command[1] == "profile"
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return 0

    body = (
        f"print('Export failed')\nif {export}: sys.exit({export})\n"
        "pathlib.Path(next(a for a in arguments if a.startswith('--output=')).partition('=')[2]).write_bytes(b'x')"
    )
    nsys = Nsys(write_tool(folder / "nsys", body), None, frozenset(), frozenset())
    return runner.record(["true"], folder, nsys=nsys, start=start)


def test_a_report_is_exported_and_kept(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, {"trace.nsys-rep": b"report"})
    assert (recording.path, recording.format) == (tmp_path / "trace.sqlite", "nsys_sqlite")
    assert (tmp_path / "trace.nsys-rep").read_bytes() == b"report"


def test_a_report_that_cannot_be_exported_is_kept_and_said(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, {"trace.nsys-rep": b"report"}, export=1)
    assert (recording.path, recording.format) == (tmp_path / "trace.nsys-rep", "nsys_report")
    assert "could not be exported to SQLite (Export failed)" in recording.note


def test_what_an_nsys_without_importer_leaves_is_kept_and_said(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, {"trace.qdstrm": b"stream"})
    assert recording.path is None
    assert "this nsys has no importer, so trace.qdstrm is what it recorded" in recording.note


def test_an_earlier_recording_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "trace.nsys-rep").write_bytes(b"of yesterday")
    with pytest.raises(RunnerError, match="nsys left no recording"):
        _recorded(tmp_path, {})


def test_a_program_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="ended with status 3"):
        runner.record(["true"], tmp_path, nsys=ASSUMED, start=lambda _: 3)


def test_the_folder_alone_is_enough(tmp_path: Path) -> None:
    shutil.copytree(Path(runner.__file__).parent, tmp_path / "runners", ignore=shutil.ignore_patterns("__pycache__"))
    for program in (["runners/nsys.py"], ["-m", "xsp_runners.nsys"]):
        done = subprocess.run(
            [sys.executable, "-I" if program[0] != "-m" else "-E", *program, "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Exit status: 0 recorded" in done.stdout


@pytest.mark.parametrize(
    ("tables", "count"),
    [
        ({}, 0),
        ({"NVTX_EVENTS": 3}, 0),
        ({"CUPTI_ACTIVITY_KIND_KERNEL": 2, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": 1, "NVTX_EVENTS": 3}, 3),
    ],
)
def test_kernels_of_a_recording_are_counted(tmp_path: Path, tables: dict[str, int], count: int) -> None:
    """A run on a GPU of which there are none is refused."""
    (tmp_path / "trace.nsys-rep").write_bytes(b"report")
    with closing(sqlite3.connect(tmp_path / "trace.sqlite")) as file:
        for table, rows in tables.items():
            file.execute(f"CREATE TABLE {table} (start)")
            file.executemany(f"INSERT INTO {table} VALUES (?)", [(n,) for n in range(rows)])  # noqa: S608
        file.commit()
    assert runner.kernel_count(tmp_path / "trace.sqlite") == count
    with pytest.raises(RunnerError, match="nsys recorded no kernel of the GPU") if not count else nullcontext():
        plan._check_kernels(tmp_path / "trace.sqlite")


def test_a_recording_that_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "trace.sqlite").write_bytes(b"no database at all, whatever its name says, and long enough to tell")
    assert runner.kernel_count(tmp_path / "trace.sqlite") is None


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("on_gpu", "graph", "memory", "capture", "os_calls"),
    [
        *(
            (True, *rest, False)
            for rest in itertools.product(("node", "graph"), (False, True), ("none", "cudaProfilerApi"))
        ),
        (True, "node", False, "none", True),
        (False, "node", False, "none", False),
        (False, "node", False, "none", True),
    ],
)
def test_the_real_nsys_takes_every_variant(
    tmp_path: Path, *, on_gpu: bool, graph: str, memory: bool, capture: str, os_calls: bool
) -> None:
    nsys, program = Nsys.locate(real_nsys()), [shutil.which("true") or "true"]
    switches = {"on_gpu": on_gpu, "memory": memory, "os_calls": os_calls}
    command = profile_command(program, tmp_path, nsys=nsys, graph=graph, capture=capture, **switches)
    done = heard(command)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert not [complaint for complaint in ("unrecognised", "Illegal", "usage:") if complaint in output]


@pytest.mark.nsys
def test_the_real_nsys_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """So that the test above can fail."""
    command = profile_command(["true"], tmp_path, nsys=Nsys.locate(real_nsys()), graph="leaf")
    done = heard(command)
    assert done.returncode != 0
    assert "Illegal --cuda-graph-trace argument" in done.stdout + done.stderr


@pytest.mark.nsys
def test_a_program_on_the_cpu_from_recording_to_layers(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx 0.2.11")
    out = tmp_path / "run"
    program = [sys.executable, "-m", "tests.runners.nvtx_program", str(tmp_path / "durations")]
    command = [sys.executable, "-m", "xsp_runners.nsys", "--device", "cpu", "--nsys", real_nsys(), "-o", str(out)]
    done = record([*command, "--", *program], made=out / "trace.sqlite")
    assert done.returncode == 0, done.stdout + done.stderr

    trace = convert([out / "trace.sqlite"], Options(model_ranges=[r"^iteration"], layer_ranges=["^embed", "^attent"]))
    spans = trace.frame("spans").with_columns(pl.col("name", "level").cast(pl.String))
    steps = spans.filter(pl.col("level") == "model").sort("start_ns")
    own = [int(line) for line in (tmp_path / "durations").read_text().splitlines()]
    assert steps["name"].to_list() == ["iteration0", "iteration1", "iteration2"]
    assert all(6_000_000 <= ns <= around for ns, around in zip(steps["duration_ns"], own, strict=True))
    layers = spans.filter(pl.col("level") == "layer").sort("start_ns")
    assert layers["name"].to_list() == ["embedding", "attention"] * 3
    assert (layers["duration_ns"] >= pl.Series([2_000_000, 4_000_000] * 3)).all()
    assert layers["parent_id"].to_list() == [n for n in steps["span_id"] for _ in range(2)]


@pytest.mark.nsys
@pytest.mark.torch
def test_a_set_whose_kernels_level_nsys_recorded_has_the_layers_of_torch_profiler(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx 0.2.11")
    pytest.importorskip("torch", reason="needs torch")
    size = ["--batch-size", "4", "--steps", "3", "--warmup", "2", "--device", "cpu", "--threads", "1"]
    command = [sys.executable, "-m", "xsp_runners.collect", "--workload", "zoo:mlp", *size, "--kernels", "nsys"]
    command += ["--levels", "ML,MLG", "--out", str(tmp_path / "set")]
    done = record(command, made=tmp_path / "set", environment={**os.environ, "XSP_NSYS": real_nsys()})
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "set" / "mlg").iterdir()} == {
        *("run.json", "system_samples.jsonl", "trace.nsys-rep", "trace.sqlite")
    }
    merged = merge(read_run_set(tmp_path / "set", Options()))
    (matched,) = merged.frame("ledger").filter(pl.col("kind").cast(pl.String) == "match_layers").to_dicts()
    assert "match at 1.000" in matched["detail"]


@pytest.mark.nsys
def test_the_export_command_is_nsys_own(tmp_path: Path) -> None:
    done = subprocess.run(
        export_command(tmp_path / "none.nsys-rep", nsys=Nsys.locate(real_nsys())),
        check=False,
        capture_output=True,
        text=True,
    )
    assert "none.nsys-rep" in done.stdout + done.stderr
    assert "unrecognised" not in done.stdout + done.stderr


@pytest.mark.nsys
@pytest.mark.torch
def test_a_level_process_under_nsys_from_collecting_to_layers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("nvtx", reason="needs the package nvtx 0.2.11")
    options = ["--workload", "zoo:mlp", "--levels", "MLG", "--kernels", "nsys", "--device", "cpu", "--threads", "1"]
    options += ["--steps", "3", "--warmup", "2", "--batch-size", "4", "-o", str(tmp_path / "set")]
    command = [sys.executable, "-m", "xsp_runners.collect", *options]
    environment = {**os.environ, "XSP_NSYS": real_nsys()}
    done = record(command, made=tmp_path / "set", environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "set" / "mlg" / "level.json").exists()
    (trace,) = read_run_set(tmp_path / "set", Options())
    run = trace.frame("runs").to_dicts()[0]
    assert (run["model"], run["batch_size"], run["role"]) == ("mlp", 4, "kernels")
    layers = trace.frame("layers").select(pl.col("layer_name", "source").cast(pl.String))
    names = {"Linear_0", "Linear_1", "Linear_2", "ReLU_0", "ReLU_1", "Sequential_0", "Mlp_0"}
    assert set(layers["layer_name"]) == names
    assert set(layers["source"]) == {"module"}
    assert layers.height == 3 * len(names)  # of recorded steps; warm-up is not marked
    steps = (
        trace.frame("spans")
        .filter(pl.col("level").cast(pl.String) == "model")
        .join(trace.frame("ranges"), on="span_id")
    )
    named = steps.select(pl.col("name", "style").cast(pl.String))
    assert named.rows() == [("step", "StartEnd")] * 3  # of the process: autograd has a thread of its own
