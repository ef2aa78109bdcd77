"""Help: a command's own options in its own, those of reading in one group on request, and nothing in it lost."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.helpers.report_trace import small_trace
from xsp.cli.app import command_named
from xsp.cli.main import main
from xsp.cli.table import COMMANDS
from xsp.reading import options
from xsp_model import errors
from xsp_model.errors import install_advice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_OURS = [each.name for each in COMMANDS if not each.passes_on]
_FLAGS = {each.flag for each in options().values()} | {"--no-cache", "--cache-dir"}


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def _squeezed(text: str) -> str:
    """Without what the layout of boxes and lines adds."""
    return re.sub(r"[\s│╭╮╰╯─]+", "", text)


def _flags(text: str) -> set[str]:
    return set(re.findall(r"^│ \*?\s*(--[\w-]+)", text, re.MULTILINE))


@pytest.fixture(autouse=True)
def fixture_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize("name", _OURS)
def test_help_keeps_every_bracket_and_has_the_command_s_own_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _help(capsys, name, "--help")
    module = name.replace("-", "_")
    about = inspect.getdoc(getattr(import_module(f"xsp.cli.commands.{module}"), module)) or ""
    assert _squeezed(about) in _squeezed(text)
    reads = any(each.name == "help_reading" for each in command_named(name).params)
    assert not reads or not _flags(text) & (_FLAGS - {"--keep-private"})  # which one command alone has
    for parameter in command_named(name).params:
        flag = next((each for each in parameter.opts if each.startswith("--")), None)
        if flag and flag not in _FLAGS:
            assert flag in text
            assert _squeezed(parameter.help.replace("\\[", "[")) in _squeezed(text)


def test_options_of_reading_are_in_a_help_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help-reading" in _help(capsys, "report", "--help")
    text = _help(capsys, "report", "--help-reading")
    assert _FLAGS - {"--keep-private"} <= _flags(text)
    assert "--output" not in _flags(text)
    few = _flags(_help(capsys, "compare", "--help-reading"))
    assert "--layer-range" in few
    assert "--pid" not in few


def test_xsp_itself_tells_how_files_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help-reading" in _help(capsys, "--help")
    assert _FLAGS - {"--keep-private"} <= _flags(_help(capsys, "--help-reading"))


def test_a_shell_still_completes_options_of_reading() -> None:
    command = command_named("report")
    context = command.make_context("report", ["trace.json"], resilient_parsing=True)
    offered = {each.value for each in command.shell_complete(context, "--layer")}
    assert offered == {"--layer-source", "--layer-range"}


@pytest.mark.parametrize(
    ("requirements", "advice"),
    [
        (
            [
                'dask[distributed]>=2024.5; extra == "cluster"',
                "polars>=1",
                's3fs; extra == "cluster"',
                'x; extra == "y"',
            ],
            (
                "Type `pip install 'dask[distributed]>=2024.5' 's3fs'`, or `pip install '.[cluster]'` in a checkout of"
                " xsp (of its wheel: `pip install 'FILE.whl[cluster]'`)"
            ),
        ),
        (
            [],
            "Type `pip install '.[cluster]'` in a checkout of xsp (of its wheel: `pip install 'FILE.whl[cluster]'`)",
        ),
    ],
)
def test_advice_to_install_names_what_is_on_an_index_and_keeps_its_brackets(
    requirements: Sequence[str],
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_trace(tmp_path)
    monkeypatch.setattr(errors, "requires", lambda _: requirements)
    assert install_advice("cluster") == advice
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert (
        main(["batch", str(tmp_path / "small.json"), "-o", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:1"])
        == 2
    )
    assert advice in capsys.readouterr().err
