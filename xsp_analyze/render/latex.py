r"""Results as LaTeX tables for a paper, in the units of the terminal's: `\usepackage{booktabs}` is all they need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_analyze.render.origin import origin_line, shared_ledger_lines
from xsp_analyze.text.table import shown_table, unknown_columns
from xsp_analyze.text.units import fit_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.text.table import TextColumn

__all__ = ["escape_latex", "render", "render_many"]

_MAX_NAME = 48  # characters; the width of a page
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "{-}",  # two of them would be a dash
    "[": "{[}",  # after \\ it would be the room between rows
    "]": "{]}",
    "\N{MICRO SIGN}": r"\textmu{}",
    "\N{MULTIPLICATION SIGN}": r"\texttimes{}",
    "\N{MIDDLE DOT}": r"\textperiodcentered{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{EM DASH}": "---",
    "\N{EN DASH}": "--",
    "\N{NO-BREAK SPACE}": "~",
    "\N{NARROW NO-BREAK SPACE}": r"\,",
    "\N{THIN SPACE}": r"\,",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_TABLE = str.maketrans(_ESCAPES)


def render(result: Result) -> str:
    """One table, the warnings on it, and where its numbers come from."""
    return render_many([result])


def render_many(results: Sequence[Result], rows: int | None = None) -> str:
    """A table an analysis, of at most so many rows; what is said of all of them is in comments at the end."""
    lines = [r"% \usepackage{booktabs}"]
    for result in results:
        lines += ["", *_table(result, rows)]
    notes = [*shared_ledger_lines(results), *filter(None, [origin_line(results)])]
    return "\n".join([*lines, "", *map(_comment, notes)]) + "\n"


def escape_latex(text: str) -> str:
    """The text, with nothing in it that TeX would act on."""
    return text.translate(_TABLE)


def _table(result: Result, rows: int | None) -> Iterator[str]:
    hidden = max(result.table.height - rows, 0) if rows is not None else 0
    columns = [_short(column) for column in shown_table(result, rows).columns]
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{escape_latex(result.analysis.title)} ({escape_latex(result.analysis.id)})}}"
    yield rf"  \begin{{tabular}}{{{''.join('r' if c.is_number else 'l' for c in columns)}}}"
    yield r"    \toprule"
    yield _row([_heading(column) for column in columns])
    yield r"    \midrule"
    for cells in zip(*(column.cells for column in columns), strict=True):
        yield _row([escape_latex(cell) for cell in cells])
    if hidden:
        label = next((i for i, c in enumerate(columns) if not c.is_number), None)
        yield _row([f"and {hidden:,} more" if i == label else escape_latex(c.rest) for i, c in enumerate(columns)])
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"
    if unknown := unknown_columns(result):
        yield _comment(f"Unknown in this trace: {', '.join(c.name for c in unknown)}.")


def _short(column: TextColumn) -> TextColumn:
    return column if column.is_number else replace(column, cells=fit_names(column.cells, _MAX_NAME))


def _heading(column: TextColumn) -> str:
    return escape_latex(f"{column.heading} ({column.unit_beside})" if column.unit_beside else column.heading)


def _row(cells: Sequence[str]) -> str:
    return rf"    {' & '.join(cells)} \\"


def _comment(line: str) -> str:
    return f"% {' '.join(line.split())}"
