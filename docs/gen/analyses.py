"""A page an analysis, from the catalog, from `docs/analyses.md` and from a run on a sample file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.gen.examples import example_of
from docs.gen.formulas import formulas_of, modules_of
from xsp_analyze.catalog import all_analyses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Analysis

__all__ = ["analysis_pages", "definitions"]

_DOCS = Path(__file__).resolve().parents[1]
_DEFINED = re.compile(r"\*\*((?:[AB]\d\d(?:, | and )?)+) ")
_NO_EXAMPLE = "None of the sample files that come with XSP has rows for it, so there is no example here."
_INDEX = """\
# All analyses

`xsp analyze INPUT -a ID` answers one of these; `xsp analyses` lists them on a terminal. [What each number
means](../analyses.md) is the same as one text, with what they have in common: steps, latency, coverage.
"""


def analysis_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown: a page an analysis, and the list of them."""
    defined = definitions((_DOCS / "analyses.md").read_text(encoding="utf-8"))
    pages = {f"analyses/{a.id}.md": _page(a, defined.get(a.id, "")) for a in all_analyses()}
    return {"analyses/index.md": _index(), **pages}


def definitions(text: str) -> Mapping[str, str]:
    """Id to its paragraph of `analyses.md`, with what follows it up to the next bold beginning or heading."""
    paragraphs: dict[str, str] = {}
    ids: Sequence[str] = ()
    for block in re.split(r"\n{2,}", text):
        begins = _DEFINED.match(block)
        if begins:
            ids = re.findall(r"[AB]\d\d", begins[1])
        elif block.startswith(("#", "**")):
            ids = ()
        paragraphs |= {one: f"{paragraphs[one]}\n\n{block}" if one in paragraphs else block for one in ids}
    return paragraphs


def _one_folder_up(text: str) -> str:
    """The text with links to its neighbours as a page in a folder beside them has them."""
    return re.sub(r"\]\((?=[\w-]+\.md)", "](../", text)


def _index() -> str:
    rows = [f"| [{a.id}]({a.id}.md) | {_cell(a.title)} | {_cell(' '.join(a.doc.split()))} |" for a in all_analyses()]
    return "\n".join([_INDEX, "| id | title | what a row is |", "|---|---|---|", *rows]) + "\n"


def _page(analysis: Analysis, defined: str) -> str:
    parts = [
        f"# {analysis.id}: {analysis.title}",
        analysis.doc,
        analysis.read,
        f"Needs: {', '.join(map(str, analysis.needs)) or 'nothing'}."
        + ("" if analysis.by_step else " `--steps` does not apply."),
        _example(analysis),
        f"## Definition\n\n{_one_folder_up(defined)}" if defined else "",
        _formulas(analysis),
        _columns(analysis),
        "## Source\n\n" + ", ".join(f"`{module}`" for module in modules_of(analysis)) + ".",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _example(analysis: Analysis) -> str:
    example = example_of(analysis)
    if example is None:
        return f"## Example\n\n{_NO_EXAMPLE}"
    return f"## Example\n\n```console\n$ {example.command}\n```\n\n{example.about}\n\n{example.answer}"


def _formulas(analysis: Analysis) -> str:
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in formulas_of(analysis)]
    return (
        "\n".join(["## Formulas", "", "| in `xsp_analyze.formulas` | what, and its source |", "|---|---|", *rows])
        if rows
        else ""
    )


def _columns(analysis: Analysis) -> str:
    rows = [f"| `{c.name}` | {_cell(c.unit)} | {c.role} | {_cell(c.doc)} |" for c in analysis.columns]
    return "\n".join(["## Columns", "", "| column | unit at rest | role | what |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
