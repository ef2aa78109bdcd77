"""Turns results into text and files: one module a format, listed once in FORMATS."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from xsp_analyze.render.terminal import Screen
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xsp_analyze.core import Result

__all__ = ["FORMATS", "Format", "Screen", "render", "render_one"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the ending of its files, how one result is written, and how several follow one another."""

    suffix: str
    one: Callable[..., str | bytes]
    several: Callable[..., str | bytes] | None = None


def _by(module: str, function: str = "render") -> Callable[..., Any]:
    """A renderer that is imported when it is first used: one answer is written in one format."""

    def render(*arguments: object, **options: object) -> object:
        return getattr(import_module(f"xsp_analyze.render.{module}"), function)(*arguments, **options)

    return render


def _sheets(results: Sequence[Result], *, raw: bool = False) -> str:
    sheet = _by("csv_text")
    return "\n".join(f"# {r.analysis.id} {r.analysis.title}\n{sheet(r, raw=raw)}" for r in results)


FORMATS: Mapping[str, Format] = {
    "table": Format("txt", _by("terminal"), _by("terminal", "render_many")),
    "csv": Format("csv", _by("csv_text"), _sheets),
    "json": Format("json", _by("json_text"), _by("json_text", "render_many")),
    "md": Format("md", _by("markdown"), _by("markdown", "render_many")),
    "latex": Format("tex", _by("latex"), _by("latex", "render_many")),
    "xlsx": Format("xlsx", _by("xlsx"), _by("xlsx", "render_many")),
    "parquet": Format("parquet", _by("parquet")),
}
"""Every format that `-f` takes."""


def render_one(result: Result, name: str, *, csv_raw: bool = False) -> bytes:
    """The result as a file of its own; KeyError where there is no such format."""
    return _bytes(FORMATS[name].one(result, **_options(name, csv_raw=csv_raw)))


def _options(name: str, *, csv_raw: bool) -> Mapping[str, bool]:
    return {"raw": csv_raw} if name == "csv" else {}


def render(
    results: Sequence[Result],
    name: str,
    screen: Screen | None = None,
    *,
    csv_raw: bool = False,
    is_list: bool | None = None,
) -> bytes:
    """All results as one stream; XspError where the format holds one result a file.

    `screen` concerns tables, and how many rows it has also those for LaTeX. `csv_raw`: of CSV, texts as they are.
    `is_list`: whether several were asked for, as which a program expects them however many were answered; None: the
    results are what was asked for.
    """
    if name == "table" and screen is not None:
        return str(_by("terminal", "render_many")(results, screen)).encode()
    if name == "latex" and screen is not None:
        return str(_by("latex", "render_many")(results, screen.rows)).encode()
    several = FORMATS[name].several
    if len(results) == 1 and (several is None or not is_list):
        return render_one(results[0], name, csv_raw=csv_raw)
    if several is None:
        raise XspError(f"{name} holds one analysis a file", advice="Choose one with -a, or give a folder with -o")
    return _bytes(several(results, **_options(name, csv_raw=csv_raw)))


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()
