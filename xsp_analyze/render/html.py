"""Small HTML for notebooks: tables and paragraphs in which every text of a trace is only ever text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.render.shown import clean, ledger_lines, provenance_line, shown_columns, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Result

__all__ = ["definitions", "heading", "paragraph", "result", "table"]

_MOST_ROWS = 20
_NUMBER = "text-align:right;padding:.1em .6em;white-space:nowrap"
_TEXT = "text-align:left;padding:.1em .6em;max-width:40em;min-width:{}em;overflow-wrap:anywhere"
_HEAD = "text-align:{};padding:.1em .6em;vertical-align:bottom"
_WORD = 14  # letters; a column of text that long is broken only where it is wider than that
_LONGEST = 400  # of a sentence; names of kernels are cut sooner, and rest the pointer on one to read it whole
_LONGEST_NAME = 80


def text(value: str) -> str:
    """The text, as HTML and without control characters."""
    return escape(clean(value))


def _cell(value: str) -> str:
    """The text; a long name (it has few spaces) loses its middle, and the whole is shown under the pointer."""
    plain = clean(value)
    longest = _LONGEST_NAME if "::" in plain or " " not in plain else _LONGEST
    if len(plain) <= longest:
        return escape(plain)
    tail = longest // 3
    return f'<span title="{escape(plain)}">{escape(plain[: longest - tail - 1])}…{escape(plain[-tail:])}</span>'


def heading(value: str) -> str:
    """A line in bold."""
    return f"<p><b>{text(value)}</b></p>"


def paragraph(value: str, *, dim: bool = False) -> str:
    """A paragraph; a dim one is a remark."""
    return f'<p style="opacity:.7">{text(value)}</p>' if dim else f"<p>{text(value)}</p>"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool]) -> str:
    """A table of texts; numbers stand right."""
    widest = [max((len(row[i]) for row in rows), default=0) for i in range(len(headings))]
    sides = [_NUMBER if number else _text_style(most) for number, most in zip(is_number, widest, strict=True)]
    heads = [_HEAD.format("right" if number else "left") for number in is_number]
    head = "".join(f'<th style="{side}">{text(cell)}</th>' for side, cell in zip(heads, headings, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{side}">{_cell(cell)}</td>' for side, cell in zip(sides, row, strict=True))
        + "</tr>"
        for row in rows
    )
    rows_of_html = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{rows_of_html}</div>'


def _text_style(most: int) -> str:
    """Short words stay whole; long names may break, but keep a readable width."""
    return _TEXT.format(round(min(most, _WORD) * 0.55, 1))


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """A table of words and what they stand for."""
    side = _TEXT.format(0)
    rows = "".join(
        f'<tr><th style="{side}">{text(word)}</th><td style="{side}">{text(what)}</td></tr>' for word, what in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"


def result(one: Result) -> str:
    """An answer's first rows in units for people, then what it leaves out, warnings, and where it comes from."""
    columns = shown_columns(one, _MOST_ROWS)
    parts = [heading(f"{one.analysis.id} {one.analysis.title}")]
    if one.table.height:
        heads = [f"{c.heading} ({c.unit})" if c.unit else c.heading for c in columns]
        rows = list(zip(*(c.cells for c in columns), strict=True))
        parts.append(table(heads, rows, [c.is_number for c in columns]))
    else:
        parts.append(paragraph("No rows."))
    if (more := one.table.height - _MOST_ROWS) > 0:
        parts.append(paragraph(f"{more:,} more rows: to_pandas(), to_polars() and to_arrow() hold all.", dim=True))
    if unknown := unknown_columns(one):
        parts.append(paragraph(f"Unknown in this trace: {', '.join(c.name for c in unknown)}.", dim=True))
    parts += [paragraph(line) for line in ledger_lines(one)]
    if origin := provenance_line(one):
        parts.append(paragraph(origin, dim=True))
    return "".join(parts)
