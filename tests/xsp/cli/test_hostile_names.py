"""Names that would move the cursor, colour the screen or turn lines around: on a terminal and in files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers.pseudo_terminal import shown_on_terminal
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

_HOSTILE = "evil\x1b[2J\x9b31m\u202e\x07\x7f\u2066[bold]name[/bold]"
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A step with a kernel that an operator launched, each of a hostile name."""
    trace = KinetoTrace()
    trace.step(0, 0, 10_000)
    trace.operator(_HOSTILE, 100, 900)
    trace.kernel(_HOSTILE, 2_000, 100, correlation=trace.runtime("cudaLaunchKernel", 200, 50))
    return trace.write(tmp_path / "\x9bhostile[x].json")


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "-a", "A10", "-f", "table"],
        ["analyze", "-a", "A10", "-f", "csv"],
        ["analyze", "-a", "A10", "-f", "json"],
        ["analyze", "-a", "A10", "-f", "md"],
        ["top"],
        ["info"],
        ["info", "-f", "json"],
        ["findings"],
        ["findings", "-f", "json"],
        ["findings", "-f", "md"],
    ],
    ids=" ".join,
)
def test_nothing_in_a_name_acts_on_a_terminal(
    hostile: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = shown_on_terminal(monkeypatch, command[0], hostile, *command[1:], "--no-cache")
    assert not _ACTS.search(shown)
    if command[-1] == "json":
        json.loads(shown)
    if "A10" in command:
        assert "evil" in shown
        assert "[bold]" in shown.replace("\\", "")  # Markdown escapes brackets


@pytest.mark.parametrize("output_format", ["table", "csv", "json"])
def test_nothing_in_a_name_that_a_query_gives_acts_on_a_terminal(
    hostile: Path, output_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select name from spans where level = 'kernel'"
    shown = shown_on_terminal(monkeypatch, "query", hostile, query, "-f", output_format, "--no-cache")
    assert not _ACTS.search(shown)
    assert "evil" in shown
    assert "[bold]name[/bold]" in shown


def test_in_a_pipe_programs_get_the_name_as_it_is(hostile: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["analyze", str(hostile), "-a", "A10", "-f", "csv", "--no-cache"]) == 0
    assert _HOSTILE in capsysbinary.readouterr().out.decode()


def test_what_is_said_about_a_file_does_not_act_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "no\x1b[2Jne\u202e[x].json")]) == 2
    error = capsys.readouterr().err
    assert not _ACTS.search(error)
    assert "[2J" in error
    assert "[x].json" in error
