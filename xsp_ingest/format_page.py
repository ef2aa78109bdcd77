"""The page about all formats, made of the registry's titles and of the README in each format's package."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from typing import TYPE_CHECKING

from xsp_ingest.files.other_tools import all_refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.ingester import Ingester

__all__ = ["about", "page"]

_HEADING = re.compile(r"^#", re.MULTILINE)
_LINE = re.compile(r"^# (.*)\n+")
_INTRODUCTION = """\
# Formats

<!-- Made by `xsp formats --markdown` from the registry and the README of each format's package: change those. -->

A file's format is judged by its content, whatever the file is called; `--format NAME` forces one. Compressed content
may be 64 GiB at most and, where it is longer than 1 GiB, 400 times as long as its file. Links that you name are
followed; links in a folder that lead out of it, pipes, sockets and devices are left out and counted. A SQLite database
that another program is writing is refused. Pickles are never opened.
"""


def about(ingester: Ingester) -> str:
    """The README of the format's package; its title alone where the package has none."""
    package = _package(ingester)
    readme = files(package) / "README.md" if package else None
    if readme is None or not readme.is_file():
        return f"# {ingester.name}\n\n{ingester.title}\n"
    return readme.read_text(encoding="utf-8")


def page(ingesters: Sequence[Ingester]) -> str:
    """All formats as Markdown: a table of them, a section for each, and what is recognised but not read."""
    heads = [_LINE.match(about(i)) for i in ingesters]
    titles = [head[1] if head else i.name for head, i in zip(heads, ingesters, strict=True)]
    rows = [f"| `{i.name}` | {_cell(i.title)} |" for i in ingesters]
    table = "\n".join(["| format | what it is, and what was seen |", "|---|---|", *rows])
    sections = [_section(title, i) for title, i in zip(titles, ingesters, strict=True)]
    others = "\n".join(
        ["| a file that is | what to do |", "|---|---|", *(f"| {_cell(w)} | {_cell(a)} |" for w, a in all_refusals())]
    )
    recognised = f"## Recognised, not read\n\nWhat is said of files that no reader claims.\n\n{others}\n"
    return "\n".join([_INTRODUCTION, table + "\n", *sections, recognised])


def _section(title: str, ingester: Ingester) -> str:
    """The README one level deeper, under its title and the name that `--format` takes."""
    text = _LINE.sub("", about(ingester)).rstrip()
    folder = _package(ingester).replace(".", "/")
    return f"## {title}\n\nFormat `{ingester.name}`. Source: `{folder}`.\n\n{_HEADING.sub('##', text)}\n"


def _package(ingester: Ingester) -> str:
    """Where the ingester's class is defined: in a package's own file, or in a module beside it."""
    module = sys.modules[type(ingester).__module__]
    return module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
