"""What `xsp --help` prints, made of the table of commands: typer and rich take longer to import than it does to read.

It looks as typer has it, which prints the help wherever its look would be another: see `text`.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from xsp.cli.table import ABOUT, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["root_help", "text"]

_FORMS: tuple[list[str], ...] = ([], ["-h"], ["--help"])
_OPTIONS = (
    ("--version", "", "Print version and commit and exit."),
    ("--help-reading", "", "Show how files are read (options that commands share), and exit."),
    ("--install-completion", "", "Install completion for the current shell."),
    ("--show-completion", "", "Show completion for the current shell, to copy it or customize the installation."),
    ("--help", "-h", "Show this message and exit."),
)
_MIN_COLUMNS = 61
_DEFAULT_COLUMNS = 80
_CHANGES_LOOK = re.compile(
    r"_?TYPER_|_XSP_COMPLETE|TERMINAL_WIDTH|(GITHUB_ACTIONS|FORCE_COLOR|PY_COLORS|NO_COLOR|JUPYTER_COLUMNS|TTY_\w+)$"
)
_SWITCH = re.compile(r"(?<![-\w])-\w+(?![a-zA-Z0-9])")
_OPTION = re.compile(r"(?<!\w)--[\w-]+(?![a-zA-Z0-9])")
_CODE = re.compile(r"\x1b\[[\d;]*m")
_BOLD, _DIM, _YELLOW, _CYAN, _GREEN = "1", "2", "33", "36", "32"


def text(arguments: Sequence[str]) -> str | None:
    """The help, where these arguments ask for it; None where they do not, or typer is to print it.

    Typer prints what a user's variables change, what is for a terminal without colours or other than of UTF-8, and what
    is too narrow for columns beside each other.
    """
    on_screen = sys.stdout.isatty()
    columns = _columns()
    if (
        list(arguments) not in _FORMS
        or columns < _MIN_COLUMNS
        or not (sys.stdout.encoding or "").lower().startswith("utf")
        or any(_CHANGES_LOOK.match(name) and value for name, value in os.environ.items())
        or (on_screen and (sys.platform == "win32" or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}))
    ):
        return None
    return root_help(columns, color=on_screen)


def _columns() -> int:
    columns = 0
    for descriptor in (0, 1, 2):
        try:
            columns = os.get_terminal_size(descriptor).columns
            break
        except (OSError, ValueError):
            continue
    variable = os.environ.get("COLUMNS", "")
    return (int(variable) if variable.isdigit() else columns) or _DEFAULT_COLUMNS


def root_help(columns: int, *, color: bool) -> str:
    """The help for lines of so many columns; each ends as the others do."""
    lines = "".join(f"{line}\n" for line in _lines(columns))
    return lines if color else _CODE.sub("", lines)


def _lines(columns: int) -> Iterator[str]:
    blank = " " * columns
    usage = "xsp [OPTIONS] COMMAND [ARGS]...".ljust(columns - 8)
    yield blank
    yield f" {_style('Usage: ', _BOLD, _YELLOW)}{_style(usage, _BOLD)}"
    yield blank
    for number, paragraph in enumerate(ABOUT.split("\n\n")):
        if number > 0:
            yield blank
        for line in _wrap(paragraph, columns - 2):
            yield f" {_highlight(line, *([_DIM] if number else []))} "
    yield blank
    yield from _panel("Options", columns, list(_option_rows(columns - 4)))
    yield from _panel("Commands", columns, list(_command_rows(columns - 4)))


def _panel(title: str, columns: int, rows: Sequence[str]) -> Iterator[str]:
    yield _style(f"╭─ {title} ".ljust(columns - 1, "─") + "╮", _DIM)
    edge = _style("│", _DIM)
    for row in rows:
        yield f"{edge} {row} {edge}"
    yield _style("╰".ljust(columns - 1, "─") + "╯", _DIM)


def _option_rows(columns: int) -> Iterator[str]:
    width = max(len(name) for name, _, _ in _OPTIONS)
    kind = f"{_style('<', _DIM, _BOLD, _YELLOW)}{_style('bool', _BOLD, _YELLOW)}{_style('>', _DIM, _BOLD, _YELLOW)}"
    for name, switch, what in _OPTIONS:
        head = f"{_style(name.ljust(width), _BOLD, _CYAN)}  {_style(switch.ljust(2), _BOLD, _GREEN)}      {kind}  "
        yield from _beside(head, width + 2 + 2 + 6 + 6 + 2, what, columns)


def _command_rows(columns: int) -> Iterator[str]:
    width = max(len(each.name) for each in COMMANDS)
    for each in COMMANDS:
        yield from _beside(f"{_style(each.name.ljust(width), _BOLD, _CYAN)}  ", width + 2, each.help, columns)


def _beside(head: str, head_columns: int, what: str, columns: int) -> Iterator[str]:
    for number, line in enumerate(_wrap(what, columns - head_columns)):
        yield f"{' ' * head_columns if number else head}{_highlight(line)}"


def _wrap(what: str, columns: int) -> list[str]:
    lines = textwrap.wrap(what, columns, break_on_hyphens=False)
    return [line.ljust(columns) for line in lines]


def _highlight(line: str, *base: str) -> str:
    """The line with its options in colour."""
    parts, end = [], 0
    marks = [(m, _CYAN) for m in _OPTION.finditer(line)] + [(m, _GREEN) for m in _SWITCH.finditer(line)]
    for match, color in sorted(marks, key=lambda mark: mark[0].start()):
        parts += [_style(line[end : match.start()], *base), _style(match[0], _BOLD, *base, color)]
        end = match.end()
    return "".join((*parts, _style(line[end:], *base)))


def _style(piece: str, *attributes: str) -> str:
    return f"\x1b[{';'.join(attributes)}m{piece}\x1b[0m" if piece and attributes else piece
