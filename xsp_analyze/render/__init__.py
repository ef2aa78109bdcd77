"""Turns results into text and files: one module a format, listed once in FORMATS."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from xsp_analyze.render.column_fit import Screen
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.core import Result

__all__ = ["FORMATS", "Format", "Screen", "render", "render_one"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the ending of its files, how one result is written, and how several follow one another."""

    suffix: str
    one: Callable[[Result], str | bytes]
    several: Callable[[Sequence[Result]], str] | None = None


def _by(module: str, function: str = "render") -> Callable[..., Any]:
    """A renderer that is imported when it is first used: one answer is written in one format."""

    def render(*arguments: object) -> object:
        return getattr(import_module(f"xsp_analyze.render.{module}"), function)(*arguments)

    return render


def _documents(results: Sequence[Result]) -> str:
    return "\n".join(map(_by("markdown"), results))


def _sheets(results: Sequence[Result]) -> str:
    sheet = _by("csv_text")
    return "\n".join(f"# {r.analysis.id} {r.analysis.title}\n{sheet(r)}" for r in results)


FORMATS: Mapping[str, Format] = {
    "table": Format("txt", _by("terminal"), _by("terminal", "render_many")),
    "csv": Format("csv", _by("csv_text"), _sheets),
    "json": Format("json", _by("json_text"), _by("json_text", "render_many")),
    "md": Format("md", _by("markdown"), _documents),
    "parquet": Format("parquet", _by("parquet")),
}
"""Every format that `-f` takes."""


def render_one(result: Result, name: str) -> bytes:
    """The result as a file of its own; KeyError where there is no such format."""
    return _bytes(FORMATS[name].one(result))


def render(results: Sequence[Result], name: str, screen: Screen | None = None) -> bytes:
    """All results as one stream; `screen` concerns tables only. XspError where the format holds one result a file."""
    if name == "table" and screen is not None:
        return str(_by("terminal", "render_many")(results, screen)).encode()
    if len(results) == 1:
        return render_one(results[0], name)
    several = FORMATS[name].several
    if several is None:
        raise XspError(f"{name} holds one analysis a file", advice="Choose one with -a, or give a folder with -o")
    return several(results).encode()


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()
