"""Streams that are closed, full or broken: the command ends as `cat` does, and never as if all were well."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")

_ANSWERS = (("--help",), ("top", "TRACE"))
_MORE_ANSWERS = (
    ("--version",),
    ("top", "--help"),
    ("schema",),
    ("formats",),
    ("info", "TRACE", "-f", "json"),
    ("analyze", "TRACE", "-a", "A10", "-f", "csv"),
    ("query", "TRACE", "select * from spans"),
    ("batch", "TRACE", "-o", "OUT", "--jobs", "1"),
    ("collect", "--help"),
    ("collect", "--workload", "zoo:mlp", "--dry-run", "-o", "OUT"),
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = KinetoTrace()
    made.step(1, 0, 500_000)
    made.operator("aten::mm", 10_000, 40_000)
    made.launch("gemm", 20_000, 60_000, 100_000)
    return made.write(tmp_path_factory.mktemp("streams") / "trace.json")


def _shell(command: Sequence[str], redirections: str, trace: Path, out: Path) -> subprocess.CompletedProcess[str]:
    names = {"TRACE": str(trace), "OUT": str(out)}
    program = [sys.executable, "-c", "import sys; from xsp.cli.main import main; sys.exit(main())"]
    line = shlex.join([*program, *(names.get(part, part) for part in command)])
    return subprocess.run(
        ["/bin/bash", "-c", f"{line} {redirections}"], capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize(
    "command",
    [*_ANSWERS, *(pytest.param(command, marks=pytest.mark.slow) for command in _MORE_ANSWERS)],
    ids=" ".join,
)
def test_an_answer_that_is_lost_is_said_in_a_sentence(command: Sequence[str], trace: Path, tmp_path: Path) -> None:
    done = _shell(command, ">/dev/full", trace, tmp_path / "full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: standard output cannot be written (No space left on device)"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [("--help",), ("top", "--help"), ("top", "TRACE"), ("collect", "--help")], ids=" ".join
)
def test_a_closed_output_is_one_that_is_lost(command: Sequence[str], trace: Path, tmp_path: Path) -> None:
    done = _shell(command, ">&-", trace, tmp_path / "closed")
    assert (done.returncode, done.stderr) == (1, "error: standard output cannot be written (Bad file descriptor)\n")


def test_no_file_takes_the_number_of_a_closed_stream(trace: Path, tmp_path: Path) -> None:
    done = _shell(
        ("query", "TRACE", "select 1 as one", "-f", "csv", "-o", "OUT"), "<&- >&- 2>&-", trace, tmp_path / "q"
    )
    assert done.returncode == 0
    assert (tmp_path / "q").read_text(encoding="utf-8") == "one\n1\n"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("command", "status"),
    [(("top", "/no/such/file"), 2), (("query", "TRACE", "select 1 as one", "-o", "OUT"), 0)],
    ids=("an error", "a note"),
)
def test_errors_need_no_reader(
    command: Sequence[str], status: int, redirection: str, trace: Path, tmp_path: Path
) -> None:
    done = _shell(command, redirection, trace, tmp_path / "out")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.parametrize("command", [("top", "--help"), ("top", "TRACE"), ("collect", "--help")], ids=" ".join)
def test_a_reader_that_has_gone_is_left_in_silence(command: Sequence[str], trace: Path, tmp_path: Path) -> None:
    done = _shell(command, "| true; echo ${PIPESTATUS[0]}", trace, tmp_path / "out")
    assert done.stderr == ""
    assert done.stdout in {"141\n", "0\n"}  # the second: it was written before the reader went
