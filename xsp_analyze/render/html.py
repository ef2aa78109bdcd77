"""Small HTML for notebooks: tables and paragraphs in which every text of a trace is only ever text."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.text.table import clean, ledger_lines, on_the_point, provenance_line, shown_table, unknown_columns
from xsp_analyze.text.units import count, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.text.table import Table, TextColumn

__all__ = ["definitions", "heading", "paragraph", "result", "table", "table_elements", "text"]

_MAX_ROWS = 20
_NUMBER = "text-align:right;padding:.1em .6em;white-space:nowrap"
_TEXT = "text-align:left;padding:.1em .6em;max-width:40em;min-width:{}em;overflow-wrap:anywhere"
_HEAD = "text-align:{};padding:.1em .6em;vertical-align:bottom"
_FIGURE_SPACE, _POINT_SPACE = "\u2007", "\u2008"  # as wide as a digit and as a decimal point
_UNBROKEN = 14  # characters; a column of text that long is broken only where it is wider than that
_LONGEST = 400  # of a sentence; names of kernels are cut sooner
_LONGEST_NAME = 80


def text(value: str) -> str:
    """The text, as HTML and without control characters."""
    return escape(clean(value))


def _cell(value: str) -> str:
    """The text; a long name (it has few spaces) loses its middle, and all of it is shown under the pointer."""
    plain = clean(value)
    longest = _LONGEST_NAME if "::" in plain or " " not in plain else _LONGEST
    shown = cut(plain, longest)
    return escape(plain) if shown == plain else f'<span title="{escape(plain)}">{escape(shown)}</span>'


def heading(value: str) -> str:
    """A line in bold."""
    return f"<p><b>{text(value)}</b></p>"


def paragraph(value: str, *, dim: bool = False) -> str:
    """A paragraph; a dim one is a remark."""
    return f'<p style="opacity:.7">{text(value)}</p>' if dim else f"<p>{text(value)}</p>"


def table(shown: Table) -> str:
    """A table with its styles beside each cell, as a notebook has no sheet of ours."""
    heads = [f' style="{_HEAD.format("right" if c.is_number else "left")}"' for c in shown.columns]
    sides = [f' style="{_NUMBER if c.is_number else _text_style(c)}"' for c in shown.columns]
    return f'<div style="overflow-x:auto">{table_elements(shown, heads, sides, _cell)}</div>'


def table_elements(shown: Table, heads: Sequence[str], sides: Sequence[str], cell: Callable[[str], str] = text) -> str:
    """The table's elements; `heads` and `sides` are the attributes of each column's heading and cells."""
    names = (f"{c.heading} ({c.unit_beside})" if c.unit_beside else c.heading for c in shown.columns)
    head = "".join(f'<th scope="col"{side}>{text(name)}</th>' for side, name in zip(heads, names, strict=True))
    aligned = replace(shown, columns=[on_the_point(c, _FIGURE_SPACE, _POINT_SPACE) for c in shown.columns])
    rows = (zip(sides, row, strict=True) for row in aligned.rows)
    body = "".join(f"<tr>{''.join(f'<td{side}>{cell(value)}</td>' for side, value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text_style(column: TextColumn) -> str:
    """Short words are not broken; long names may be, but keep a readable width."""
    longest = max(map(len, column.cells), default=0)
    return _TEXT.format(round(min(longest, _UNBROKEN) * 0.55, 1))


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """A table of words and what they stand for."""
    side = _TEXT.format(0)
    rows = "".join(
        f'<tr><th style="{side}">{text(term)}</th><td style="{side}">{text(what)}</td></tr>' for term, what in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"


def result(one: Result) -> str:
    """An answer's first rows in units for people, then what it leaves out, warnings, and where it comes from."""
    parts = [heading(f"{one.analysis.id} {one.analysis.title}")]
    if one.table.height:
        parts.append(table(shown_table(one, _MAX_ROWS)))
    else:
        parts.append(paragraph("No rows."))
    if (more := one.table.height - _MAX_ROWS) > 0:
        parts.append(paragraph(f"{count(more)} more rows: to_pandas(), to_polars() and to_arrow() hold all.", dim=True))
    if unknown := unknown_columns(one):
        parts.append(paragraph(f"Unknown in this trace: {', '.join(c.name for c in unknown)}.", dim=True))
    parts += [paragraph(line) for line in ledger_lines(one)]
    if origin := provenance_line(one):
        parts.append(paragraph(origin, dim=True))
    return "".join(parts)
