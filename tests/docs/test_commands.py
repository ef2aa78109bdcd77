"""Every command that the docs show runs, on fixtures, and every option that they name exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer.main

from docs.gen.examples import example_of, plain
from docs.gen.formats import format_pages
from tests.docs.commands import PAGES, ROOT, Command, commands, not_run, reason_not_to_run
from tests.docs.sandbox import fill
from xsp.cli.app import app, command_named
from xsp.cli.main import main
from xsp_analyze.catalog import all_analyses

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.docs

_WITH_US = {**os.environ, "PYTHONPATH": str(ROOT)}
_OF_PAGES = {str(page.relative_to(ROOT)): commands(page.read_text(encoding="utf-8")) for page in PAGES}
_SHOWN = {name: shown for name, shown in _OF_PAGES.items() if shown}


@pytest.fixture(name="sandbox", scope="session")
def fixture_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    fill(folder)
    return folder


@pytest.mark.parametrize("page", _SHOWN)
def test_the_commands_of_a_page_run_in_their_order(
    page: str, sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if any(command.arguments[:1] == ["figure"] for command in _SHOWN[page]):
        pytest.importorskip("matplotlib")
    shutil.copytree(sandbox, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for command in _SHOWN[page]:
        if not command.is_synopsis and reason_not_to_run(command) is None:
            status = _run(command)
            assert status == 0, f"`{command.text}` ended with {status}: {capsys.readouterr().err[-400:]}"


@pytest.mark.parametrize("page", format_pages())
def test_the_samples_of_a_format_can_be_looked_at(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for command in commands(format_pages()[page]):
        assert main(command.arguments) == 0, f"`{command.text}`: {capsys.readouterr().err}"


def test_the_examples_of_analyses_are_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for analysis in all_analyses():
        example = example_of(analysis)
        if example is not None:
            assert main([*Command(example.command).arguments, "-f", "md"]) == 0, example.command
            printed = capsys.readouterr().out
            table = [line for line in example.answer.splitlines() if line.startswith("|")]
            assert plain(printed).splitlines()[2 : 2 + len(table)] == table


@pytest.mark.parametrize("page", _SHOWN)
def test_the_options_that_a_page_names_exist(page: str) -> None:
    for command in _SHOWN[page]:
        if command.arguments and command.arguments[0] != "collect":  # the runner knows its own: see _run
            missing = set(command.options) - _options_of(command.arguments[0])
            assert not missing, f"`{command.text}`"


def test_what_is_not_run_is_shown_somewhere() -> None:
    used = {reason_not_to_run(command) for shown in _SHOWN.values() for command in shown}
    assert {reason for _, reason in not_run()} <= used


def _run(command: Command) -> int:
    arguments = list(command.arguments)
    if arguments[:1] != ["collect"]:
        return main(arguments)
    # It becomes another program and captures for minutes; --dry-run reads its arguments and prints what it would start.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    runner = [sys.executable, "-m", "xsp_runners.collect", *arguments[1:at], "--dry-run", *arguments[at:]]
    return subprocess.run(runner, check=False, env=_WITH_US, stdout=subprocess.DEVNULL).returncode


def _options_of(name: str) -> set[str]:
    """Those of a command; of `xsp` itself where the first word is an option."""
    command = typer.main.get_command(app) if name.startswith("-") else command_named(name)
    return {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
