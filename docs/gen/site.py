"""All generated pages, and where each page of the site stands in its navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.gen.analyses import analysis_pages
from docs.gen.answers import answer_pages
from docs.gen.api import api_pages
from docs.gen.formats import format_pages
from docs.gen.notebooks import notebook_pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["full_navigation", "generated_pages", "project_pages"]

_ROOT = Path(__file__).resolve().parents[2]
_PROJECT = {
    "ARCHITECTURE.md": "architecture",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
}
_LINK = re.compile(r"\]\(docs/([^)]*)\)")


def generated_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown of every page that no file holds."""
    return {
        **analysis_pages(), **answer_pages(), **format_pages(), **api_pages(), **notebook_pages(), **project_pages(),
    }  # fmt: skip


def project_pages() -> Mapping[str, str]:
    """The texts of the project's root, with their links to docs and to each other as seen from `docs/project`."""
    texts = {f"project/{page}.md": (_ROOT / name).read_text(encoding="utf-8") for name, page in _PROJECT.items()}
    return {path: _from_project(text) for path, text in texts.items()}


def _from_project(text: str) -> str:
    for name, page in _PROJECT.items():
        text = re.sub(rf"\]\({re.escape(name)}([#)])", rf"]({page}.md\1", text)
    return _LINK.sub(r"](../\1)", text)


def full_navigation(nav: Sequence[object], pages: Sequence[str]) -> list[object]:
    """The navigation with `analyses/*` and its like replaced by their pages, and what nothing names under "More"."""
    named: set[str] = set()
    tree = [_full_entry(entry, pages, named) for entry in nav]
    rest = sorted(p for p in pages if p not in named)
    return [*tree, {"More": rest}] if rest else tree


def _full_entry(entry: object, pages: Sequence[str], named: set[str]) -> object:
    if isinstance(entry, dict):
        return {title: _inside(below, pages, named) for title, below in entry.items()}
    named.add(str(entry))
    return entry


def _inside(below: object, pages: Sequence[str], named: set[str]) -> object:
    if not isinstance(below, list):
        return _full_entry(below, pages, named)
    entries: list[object] = []
    for entry in below:
        if isinstance(entry, str) and entry.endswith("/*"):
            listed = _of_folder(entry[:-1], pages)
            named.update(listed)
            entries += listed
        else:
            entries.append(_full_entry(entry, pages, named))
    return entries


def _of_folder(folder: str, pages: Sequence[str]) -> list[str]:
    """The folder's pages in the order given (generated ones: the registry's), its index first."""
    inside = [p for p in pages if p.startswith(folder) and "/" not in p[len(folder) :]]
    return sorted(inside, key=lambda p: p.rpartition("/")[2] not in {"index.md", "README.md"})
