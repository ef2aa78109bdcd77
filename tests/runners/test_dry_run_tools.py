"""The commands that a dry run of `collect` prints for a GPU, given to the real nsys and ncu with another program."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.nsys_recording import heard
from tests.helpers.nsys_tool import nsys as real_nsys
from xsp_runners import collect

_WRONG = ("unrecognised", "Illegal", "is invalid", "Invalid configuration", "usage:", "Failed to find metric")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real tools, which the runners find by these variables."""
    monkeypatch.setenv("XSP_NSYS", real_nsys())
    ncu = os.environ.get("XSP_NCU") or shutil.which("ncu")
    if ncu is None:
        pytest.skip("NVIDIA's ncu is not here: put it on PATH or set XSP_NCU")
    monkeypatch.setenv("XSP_NCU", ncu)


def _printed(out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[str]]:
    """The words of each command, without what is set in the environment."""
    arguments = ["--workload", "zoo:mlp", "--device", "cuda", "--dry-run", "--out", str(out), *options]
    assert collect.main(arguments) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    return [
        [argument for argument in command if argument != "env" and not _is_setting(argument)] for command in commands
    ]


def _is_setting(argument: str) -> bool:
    name, equals, _ = argument.partition("=")
    return bool(equals) and name.isupper()


def _with_another_program(command: list[str]) -> list[str]:
    """The tool's own part of the command, around `true`."""
    return [*command[: command.index(sys.executable)], "true"]


@pytest.mark.nsys
@pytest.mark.usefixtures("tools")
def test_the_tools_take_what_a_dry_run_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mlg").mkdir()
    levels = ["--levels", "MLG,MLG-serialised,MLG+counters"]
    commands = _printed(tmp_path, capsys, *levels, "--kernels", "nsys", "--chip", "H100")
    by_tool = [Path(command[0]).name for command in commands]
    assert by_tool == ["nsys", "nsys", "ncu", "ncu", "ncu", "ncu"]
    for command in commands:
        around_true = _with_another_program(command)
        for folder in (
            "mlg",
            "mlg-serialised",
            "mlg-counters-flops",
            "mlg-counters-memory",
            "mlg-counters-tensor",
            "mlg-counters-activity",
        ):
            (tmp_path / folder).mkdir(exist_ok=True)
        done = heard(around_true)
        output = done.stdout + done.stderr
        assert [complaint for complaint in _WRONG if complaint in output] == [], output
        if Path(command[0]).name == "nsys":
            assert done.returncode == 0, output
        else:  # its arguments are right, and there is no driver; or there is one, and `true` runs no kernel
            log = Path(around_true[around_true.index("--log-file") + 1])
            assert "No kernels were profiled" in log.read_text()


def test_a_printed_level_process_takes_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = _printed(tmp_path, capsys, "--levels", "MLG", "--kernels", "cupti")
    assert [Path(argument).name for argument in command if argument.endswith(".py")] == ["cupti.py", "torch_levels.py"]
    script = command.index(next(argument for argument in command if argument.endswith("torch_levels.py")))
    done = subprocess.run([command[0], *command[script:], "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
