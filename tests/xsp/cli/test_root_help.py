"""The help of `xsp` itself, which is printed without typer: it is typer's, and says of commands what they say."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import typer
from typer import rich_utils

from xsp.cli import main
from xsp.cli.app import run
from xsp.cli.table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOKS_LIKE = "0.29.2"  # of typer; others lay the same text out in other ways
_STYLED = re.compile(r"\x1b\[([\d;]*)m|(.)", re.DOTALL)


@pytest.fixture(autouse=True)
def fixture_plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def _typer_s(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, color: bool = False
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", color)
    run(["--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [61, 80, 100, 200])
def test_it_is_what_typer_prints(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = _typer_s(columns, capsys, monkeypatch), main.root_help(columns, color=False) + "\n"
    assert _tokens(ours) == _tokens(theirs)
    if typer.__version__ == _LOOKS_LIKE:
        assert ours == theirs


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\s│╭╮╰╯─]+", re.sub(r"<\w+>", "", text))


@pytest.mark.skipif(typer.__version__ != _LOOKS_LIKE, reason="another version of typer")
def test_it_has_typer_s_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = main.root_help(100, color=True) + "\n"
    assert list(_cells(ours)) == list(_cells(_typer_s(100, capsys, monkeypatch, color=True)))


def _cells(text: str) -> Iterable[tuple[str, frozenset[str]]]:
    """Each character with its style; blanks have none that shows."""
    style: frozenset[str] = frozenset()
    for match in _STYLED.finditer(text):
        if match[2] is None:
            style = frozenset() if match[1] in {"", "0"} else style | set(match[1].split(";"))
        else:
            yield match[2], style if match[2] != " " else frozenset()


def test_the_table_says_of_a_command_what_its_own_help_begins_with() -> None:
    for each in COMMANDS:
        function = getattr(import_module(each.module), each.function)
        assert each.help == " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


@pytest.mark.parametrize("arguments", [["--help", "x"], ["analyze", "--help"], ["--version"], ["-hh"]])
def test_what_is_not_for_the_help_alone_is_left_to_typer(arguments: list[str]) -> None:
    assert main.help_text(arguments) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("COLUMNS", "60"), ("TERMINAL_WIDTH", "90"), ("NO_COLOR", "1"), ("_XSP_COMPLETE", "complete_zsh")],
)
def test_what_changes_the_look_is_left_to_typer(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv(name, value)
    assert main.help_text(["--help"]) is None
