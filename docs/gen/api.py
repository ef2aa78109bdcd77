"""The API reference: a page a public module, filled from docstrings by mkdocstrings."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PUBLIC", "api_pages"]


@dataclass(frozen=True, slots=True)
class PublicModule:
    """A module that people may import, and what for."""

    name: str
    what: str


PUBLIC = (
    PublicModule("xsp", "open a trace, ask it, export it: what most people need"),
    PublicModule("xsp_model", "the trace in memory: tables, ledger, errors"),
    PublicModule("xsp_model.schema", "the tables and columns of a trace"),
    PublicModule("xsp_model.bundle", "bundles on disk"),
    PublicModule("xsp_ingest.convert", "files to a trace"),
    PublicModule("xsp_ingest.ingester", "what a format is, for those who add one"),
    PublicModule("xsp_analyze.core", "what an analysis and its answer are, for those who add one"),
    PublicModule("xsp_analyze.trace.step_view", "a trace over chosen steps, with the frames that analyses share"),
    PublicModule("xsp_analyze.formulas", "the formulas, each with its source"),
    PublicModule("xsp_analyze.render", "answers as text and files"),
    PublicModule("xsp_analyze.ranks.job", "the ranks of a job that `xsp batch` wrote"),
)
"""One line here is a page of the reference."""


def api_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown: a page a module with public names, and the list of them."""
    listed = [module for module in PUBLIC if _names(module.name)]
    rows = [f"| [`{m.name}`]({m.name}.md) | {m.what} |" for m in listed]
    index = "\n".join(["# API reference", "", "| module | for |", "|---|---|", *rows]) + "\n"
    return {"api/index.md": index, **{f"api/{m.name}.md": _page(m.name) for m in listed}}


def _names(module: str) -> list[str]:
    return list(getattr(import_module(module), "__all__", ()))


def _page(module: str) -> str:
    """Members one by one, so that names which a package only passes on are documented where people import them."""
    names = [name for name in _names(module) if not name.startswith("__")]
    doc = (import_module(module).__doc__ or "").strip()
    members = "\n\n".join(f"::: {module}.{name}" for name in names)
    return f"# `{module}`\n\n{doc}\n\n{members}\n"
