"""A page a tutorial notebook: its text, its code, and what the code gives when the site is built."""

from __future__ import annotations

import ast
import contextlib
import html
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["notebook_pages"]

_FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def notebook_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown."""
    return {f"notebooks/{path.stem}.md": _page(path) for path in sorted(_FOLDER.glob("*.ipynb"))}


def _page(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}  # what one cell names, later ones know
    with contextlib.chdir(path.parent), pl.Config():  # what a notebook sets is its own
        parts = [part for cell in cells for part in _cell(cell, names)]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n[The notebook itself]({path.name}) is in `docs/notebooks`.\n{rest}\n"


def _cell(cell: Mapping[str, Any], names: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    yield from _outputs(source, names)


def _outputs(source: str, names: dict[str, Any]) -> Sequence[str]:
    """What the cell prints, and the value of its last line as a notebook shows it."""
    body = ast.parse(source).body
    last = body[-1] if body and isinstance(body[-1], ast.Expr) else None
    before = body if last is None else body[:-1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(before, []), "notebook", "exec"), names)  # noqa: S102 (our own notebooks)
        value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names) if last else None  # noqa: S307
    texts = [f"```text\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue() else []
    return texts if value is None else [*texts, _output_html(value)]


def _output_html(value: object) -> str:
    draw = getattr(value, "_repr_html_", None)
    inside = draw() if draw is not None else f"<pre>{html.escape(repr(value))}</pre>"
    return f'<div class="output">\n{inside}\n</div>'
