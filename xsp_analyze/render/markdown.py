"""Results as Markdown tables, in the units of the terminal's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_analyze.render.shown import ledger_lines, provenance_line, shown_table, unknown_columns

if TYPE_CHECKING:
    from xsp_analyze.core import Result
    from xsp_analyze.render.table import Table

__all__ = ["escaped", "render", "table_lines"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def render(result: Result) -> str:
    """A heading, the table, then what it leaves out, warnings and provenance as text."""
    lines = [f"## {result.analysis.id} {escaped(result.analysis.title)}", ""]
    lines += table_lines(shown_table(result)) if result.table.height else ["No rows."]
    if unknown := unknown_columns(result):
        lines += ["", f"Unknown in this trace: {', '.join(f'`{c.name}`' for c in unknown)}."]
    if findings := ledger_lines(result):
        lines += ["", *(f"- {escaped(line)}" for line in findings)]
    if origin := provenance_line(result):
        lines += ["", escaped(origin)]
    return "\n".join(lines) + "\n"


def table_lines(table: Table) -> list[str]:
    """The lines of a table; none where it has no columns."""
    if not table.columns:
        return []
    headings = [f"{escaped(c.heading)}{f' ({c.unit_beside})' if c.unit_beside else ''}" for c in table.columns]
    rules = ["---:" if c.is_number else "---" for c in table.columns]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rules, *(map(escaped, row) for row in table.rows))]


def escaped(text: str) -> str:
    """The text, with nothing in it that Markdown or HTML would read."""
    return _SPECIAL.sub(r"\\\1", text)
