"""Results as Markdown tables, in the units of the terminal's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_analyze.render.shown import ledger_lines, provenance_line, shown_columns, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.render.shown import ShownColumn

__all__ = ["render"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def render(result: Result) -> str:
    """A heading, the table, then what it leaves out, warnings and provenance as text."""
    columns = shown_columns(result)
    lines = [f"## {result.analysis.id} {_escaped(result.analysis.title)}", ""]
    lines += _table(columns) if result.table.height else ["No rows."]
    if unknown := unknown_columns(result):
        lines += ["", f"Unknown in this trace: {', '.join(f'`{c.name}`' for c in unknown)}."]
    if findings := ledger_lines(result):
        lines += ["", *(f"- {_escaped(line)}" for line in findings)]
    if origin := provenance_line(result):
        lines += ["", _escaped(origin)]
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[ShownColumn]) -> list[str]:
    headings = [_heading(c) for c in columns]
    rules = ["---:" if c.is_number else "---" for c in columns]
    rows = zip(*([_escaped(cell) for cell in c.cells] for c in columns), strict=True)
    return [f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows)]


def _heading(column: ShownColumn) -> str:
    unit = f" ({column.unit})" if column.unit and column.unit not in column.heading.split() else ""
    return _escaped(column.heading) + unit


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
