"""Pieces of a page over many traces as HTML: names stand in it only as text, links only to what lies beside it."""

from __future__ import annotations

import html
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from xsp_analyze.render.shown import clean, shown_columns, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Result

__all__ = ["escaped", "link", "page", "section", "sentence", "table"]

_ASSETS = files("xsp_analyze.pages") / "cohort" / "assets"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def escaped(text: str) -> str:
    """The text for HTML, without control characters."""
    return html.escape(clean(text))


def link(place: str | None, text: str) -> str:
    """The text, linked to a file below the page's folder where there is one."""
    return f'<a href="{html.escape(quote(place))}">{escaped(text)}</a>' if place else escaped(text)


def sentence(text: str) -> str:
    """A paragraph."""
    return f"<p>{escaped(text)}</p>"


def section(identity: str, title: str, means: str, content: str) -> str:
    """A part of the page: its title, what its numbers mean, and its content as HTML."""
    return f'<section id="{identity}"><h2>{escaped(title)}</h2><p class="means">{escaped(means)}</p>{content}</section>'


def table(result: Result, links: Mapping[str, Sequence[str | None]] | None = None, *, search: bool = False) -> str:
    """A table that is sorted by a click on a heading; `links` gives for a column where each of its rows leads."""
    unknown = {c.name for c in unknown_columns(result)}
    columns = [c for c in result.columns if c.name not in unknown]
    shown = shown_columns(result)
    heads = "".join(
        f'<th scope="col"{" class=n" if s.is_number else ""} title="{escaped(c.doc)}"><button type="button">'
        f"{escaped(s.heading)}</button>{f'<span class=unit>{escaped(s.unit)}</span>' if s.unit else ''}</th>"
        for c, s in zip(columns, shown, strict=True)
    )
    rows = []
    for n in range(result.table.height):
        cells = []
        for column, one in zip(columns, shown, strict=True):
            value = result.table[column.name][n]
            place = (links or {}).get(column.name, [None] * (n + 1))[n]
            kind = "n" if one.is_number else "text"
            known = f' data-v="{escaped(str(value))}"' if value is not None else ""
            text = link(place, one.cells[n]) if value is not None else '<span class="null">-</span>'
            cells.append(f'<td class="{kind}"{known}>{text}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    box = f'<input type="search" placeholder="Search" aria-label="Search {escaped(result.analysis.title)}">'
    return (
        f'{box if search else ""}<div class="scroll" tabindex="0" role="region"'
        f' aria-label="{escaped(result.analysis.title)}"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def page(title: str, short: Sequence[str], sections: Sequence[tuple[str, str, str]], footer: str) -> str:
    """The page of sections (identity, label in the table of contents, HTML); it loads nothing else."""
    style, script = ((_ASSETS / name).read_text(encoding="utf-8") for name in ("cohort.css", "cohort.js"))
    contents = "".join(f'<a href="#{identity}">{escaped(label)}</a>' for identity, label, _ in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<title>{escaped(title)} - XSP</title><link rel="icon" href="data:,"><style>\n{style}</style></head>\n'
        f"<body><header><h1>{escaped(title)}</h1>{''.join(map(sentence, short))}<nav>{contents}</nav></header>\n"
        f"<main>{''.join(content for _, _, content in sections)}</main>\n<footer>{escaped(footer)}</footer>\n"
        f"<script>\n{script}</script></body></html>\n"
    )
