"""The `xsp` commands that pages show in their code blocks, and which of these cannot run here."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PAGES", "ROOT", "Command", "commands", "not_run", "reason_not_to_run"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "adr" not in p.parts))
_SHOWN = re.compile(r"(?:\$ )?(xsp(?: .*)?)$")
_BESIDE = re.compile(r"\s{2,}|\s#\s")  # what stands beside a command is about it
_PLACEHOLDER = re.compile(r"(?![AB]\d\d$)[A-Z][A-Z0-9]*(\.\w+)?$")


@dataclass(frozen=True)
class Command:
    """One command as a page shows it, without what stands beside it."""

    text: str

    @property
    def arguments(self) -> Sequence[str]:
        """What follows `xsp`."""
        return shlex.split(self.text)[1:]

    @property
    def is_synopsis(self) -> bool:
        """Whether it says how commands are made, with brackets or names in capitals, and is none itself."""
        return any(w[:1] == "[" or w.endswith("...") or "|" in w or _PLACEHOLDER.match(w) for w in self.arguments)

    @property
    def options(self) -> Sequence[str]:
        """The options it names, those in brackets too."""
        own = self.text.split(" -- ")[0]
        return re.findall(r"(?<![\w-])--?[a-z][a-z-]*", own)


def commands(markdown: str) -> list[Command]:
    """Commands in code blocks, fenced or indented, in order."""
    shown = (_SHOWN.match(line.strip()) for line in _code(markdown))
    return [Command(_BESIDE.split(match[1])[0].strip()) for match in shown if match]


def _code(markdown: str) -> Iterator[str]:
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line


def reason_not_to_run(command: Command) -> str | None:
    """Why a test cannot run it, as `not_run.toml` says; None where it can."""
    return next((reason for pattern, reason in not_run() if re.search(pattern, command.text)), None)


@cache
def not_run() -> Sequence[tuple[str, str]]:
    """Patterns and reasons."""
    listed = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text(encoding="utf-8"))["command"]
    return [(entry["pattern"], entry["reason"]) for entry in listed]
