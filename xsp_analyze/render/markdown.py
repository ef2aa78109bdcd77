"""Results as Markdown tables, in the units of the terminal's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_analyze.render.origin import origin_line, shared_ledger_lines
from xsp_analyze.text.table import shown_table, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.text.table import Table

__all__ = ["escape_markdown", "render", "render_many", "table_lines"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def render(result: Result) -> str:
    """A heading, the table, then what it leaves out, warnings and provenance as text."""
    return render_many([result])


def render_many(results: Sequence[Result]) -> str:
    """One table after another under headings; warnings and provenance, which they share, once at the end."""
    blocks = ["\n".join(_block(result)) for result in results]
    if findings := shared_ledger_lines(results):
        blocks.append("\n".join(f"- {escape_markdown(line)}" for line in findings))
    if origin := origin_line(results):
        blocks.append(escape_markdown(origin))
    return "\n\n".join(blocks) + "\n"


def _block(result: Result) -> list[str]:
    lines = [f"## {result.analysis.id} {escape_markdown(result.analysis.title)}", ""]
    lines += table_lines(shown_table(result)) if result.table.height else ["No rows."]
    if unknown := unknown_columns(result):
        lines += ["", f"Unknown in this trace: {', '.join(f'`{c.name}`' for c in unknown)}."]
    return lines


def table_lines(table: Table) -> list[str]:
    """The lines of a table; none where it has no columns."""
    if not table.columns:
        return []
    headings = [f"{escape_markdown(c.heading)}{f' ({c.unit_beside})' if c.unit_beside else ''}" for c in table.columns]
    rules = ["---:" if c.is_number else "---" for c in table.columns]
    return [
        f"| {' | '.join(cells)} |" for cells in (headings, rules, *(map(escape_markdown, row) for row in table.rows))
    ]


def escape_markdown(text: str) -> str:
    """The text, with nothing in it that Markdown or HTML would read."""
    return _SPECIAL.sub(r"\\\1", text)
