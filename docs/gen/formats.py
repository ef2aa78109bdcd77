"""A page a format, from the registry, the README of its package and the sample files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_ingest.registry import about, all_ingesters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.ingester import Ingester

__all__ = ["format_pages"]

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_INDEX = """\
# Formats, one by one

Files are recognised by content, whatever they are called. [All of it on one page](../formats.md) has what is recognised
and not read, and the limits that hold for every file.
"""


def format_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown: a page a format, and the list of them."""
    rows = [f"| [`{i.name}`]({i.name}.md) | {_cell(i.title)} |" for i in all_ingesters()]
    index = "\n".join([_INDEX, "| `--format` | what |", "|---|---|", *rows]) + "\n"
    return {"formats/index.md": index, **{f"formats/{i.name}.md": _page(i) for i in all_ingesters()}}


def _page(ingester: Ingester) -> str:
    samples = list(_samples(ingester.name))
    shown = "\n\n".join(f"### {name}\n\n{what}\n\n    xsp info {path}" for name, what, path in samples)
    named = f"\n\n## By name\n\n`--format {ingester.name}` reads a file as this format, whatever it looks like.\n"
    return about(ingester).rstrip() + named + (f"\n## Sample files\n\n{shown}\n" if shown else "")


def _samples(name: str) -> Iterator[tuple[str, str, str]]:
    """Name, what it is and the command's input, of each sample that can be read by itself."""
    for case in sorted((_FIXTURES / name).glob("*/case.toml")):
        about_it = tomllib.loads(case.read_text(encoding="utf-8"))
        if "read" in about_it:
            folder = f"fixtures/{name}/{case.parent.name}"
            yield case.parent.name, _text(str(about_it["what"])), f"{folder}/{about_it['read']}"


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
