"""Tables for a terminal, fitted to its width."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from xsp_analyze.render.column_fit import GAP, NO_LIMIT, Fitted, Screen, fit
from xsp_analyze.render.origin import origin_line, shared_ledger_lines
from xsp_analyze.text.names import cut
from xsp_analyze.text.shown import shown_table, unknown_columns
from xsp_analyze.text.units import count, plain_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xsp_analyze.core import Column, Result
    from xsp_analyze.text.table import Table, TextColumn

__all__ = ["Screen", "console_on", "render", "render_many", "table_lines", "wrap_line"]

_LONG = 24
_DRAWN, _FIRST_TIME, _OTHER, _LAST = 1, 2, 3, 4  # priorities; keys have 0


def render(result: Result, screen: Screen | None = None) -> str:
    """Title, table, what the table leaves out, warnings, provenance."""
    return render_many([result], screen)


def render_many(results: Sequence[Result], screen: Screen | None = None) -> str:
    """One table after another; warnings and provenance, which they share, once at the end."""
    screen = screen or Screen()
    out = StringIO()
    console = console_on(out, screen.width or NO_LIMIT, color=screen.color)
    for result in results:
        _print_result(result, screen, console)
    for line in shared_ledger_lines(results):
        console.print(Text(line, style="yellow" if line.startswith("warning") else "red"))
    if origin := origin_line(results):
        console.print(Text(origin, style="dim"))
    return plain_spaces(out.getvalue())


def console_on(out: StringIO, width: int, *, color: bool) -> Console:
    """A console that writes text as it is, styled where colours are wanted."""
    return Console(
        file=out,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        emoji=False,
        highlight=False,
        markup=False,
    )


def table_lines(table: Table, width: int | None = None, *, otherwise: str = "use -f json") -> Iterator[str]:
    """A table's lines without style, its notes below; `otherwise`: where columns can be read that do not fit."""
    fitted = fit(table.columns, Screen(width))
    lines = [*(line.plain for line in _heading_lines(fitted)), *_row_lines(fitted)]
    for line in filter(None, (_too_narrow(table.columns, fitted, otherwise), *table.notes)):
        lines += wrap_line(line, width)
    yield from map(plain_spaces, lines)


def wrap_line(line: str, width: int | None) -> list[str]:
    """The line in as many as it needs, the further ones indented like the first, or by eight."""
    if width is None or cell_len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) or 8)
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def _print_result(result: Result, screen: Screen, console: Console) -> None:
    hidden = max(result.table.height - screen.rows, 0) if screen.rows is not None else 0
    table = _with_label(shown_table(result, screen.rows), hidden)
    if screen.width is not None:
        table = _with_priorities(table, result)
    fitted = fit(table.columns, screen)
    console.print(Text(table.title, style="bold"))
    if result.table.height:
        for heading in _heading_lines(fitted):
            console.print(heading, no_wrap=True, overflow="ignore", crop=False)
        console.file.writelines(f"{line}\n" for line in _row_lines(fitted))  # rich takes minutes at a million rows
        if hidden:
            rest = Text(_join_cells([f.column.rest for f in fitted], fitted), style="italic")
            console.print(rest, no_wrap=True, overflow="ignore", crop=False)
    else:
        console.print(Text("No rows.", style="dim"))
    narrow = _too_narrow(table.columns, fitted, "use -f csv")
    for line in filter(None, (_more_rows(hidden), narrow, *_unknown(result))):
        console.print(Text(line, style="dim"))
    console.print()


def _with_label(table: Table, hidden: int) -> Table:
    """The table, with how many rows are not shown in the first column that holds text."""
    label = next((i for i, c in enumerate(table.columns) if not c.is_number), None) if hidden else None
    columns = [replace(c, rest=f"and {count(hidden)} more") if i == label else c for i, c in enumerate(table.columns)]
    return replace(table, columns=columns)


def _with_priorities(table: Table, result: Result) -> Table:
    """Keys before what the analysis draws, before the first time, before the others; lists and paths come last.

    Of a roofline it is the share of the roof.
    """
    figure = result.analysis.figure
    drawn = frozenset() if figure is None else frozenset(("roof_share",) if figure.kind == "roofline" else figure.y)
    columns = {c.name: c for c in result.columns}
    first_time = next((c.name for c in table.columns if columns[c.name].unit == "ns" and not c.is_key), None)

    def priority(column: TextColumn) -> int:
        if column.is_key:
            return 0
        if column.name in drawn:
            return _DRAWN
        if column.name == first_time:
            return _FIRST_TIME
        return _LAST if _is_long(column, columns[column.name]) else _OTHER

    return replace(table, columns=[replace(c, priority=priority(c)) for c in table.columns])


def _is_long(shown: TextColumn, column: Column) -> bool:
    """Whether the column holds lists, paths or sentences rather than names or numbers."""
    is_name = shown.is_number or column.name.endswith("name")
    return not is_name and any(cell_len(cell) > _LONG for cell in (*shown.cells, shown.rest))


def _heading_lines(columns: Sequence[Fitted]) -> Iterator[Text]:
    """Headings that end on one line, their units beneath, and a rule."""
    height = max((len(f.heading) for f in columns), default=0)
    for line in range(height):
        parts = [([""] * (height - len(f.heading)) + f.heading)[line] for f in columns]
        yield Text(_join_cells(parts, columns), style="bold")
    units = [f.column.unit_beside for f in columns]
    if any(units):
        yield Text(_join_cells(units, columns), style="dim")
    yield Text("\u2500" * max(sum(f.width for f in columns) + GAP * (len(columns) - 1), 0), style="dim")


def _row_lines(columns: Sequence[Fitted]) -> Iterator[str]:
    for row in zip(*(f.column.cells for f in columns), strict=True):
        yield _join_cells(row, columns)


def _join_cells(cells: Iterable[str], columns: Sequence[Fitted]) -> str:
    return (" " * GAP).join(_pad_cell(cell, f) for cell, f in zip(cells, columns, strict=True)).rstrip()


def _pad_cell(cell: str, fitted: Fitted) -> str:
    text = cut(cell, fitted.width)
    blank = " " * (fitted.width - cell_len(text))
    return blank + text if fitted.column.is_number else text + blank


def _too_narrow(columns: Sequence[TextColumn], fitted: Sequence[Fitted], otherwise: str) -> str:
    shown = {f.column.heading for f in fitted}
    left_out = [c.heading for c in columns if c.heading not in shown]
    return f"Too narrow for: {', '.join(left_out)}. Widen the window, or {otherwise}." if left_out else ""


def _more_rows(hidden: int) -> str:
    return f"{count(hidden)} more rows: --all shows them, -f csv writes all." if hidden else ""


def _unknown(result: Result) -> Iterator[str]:
    if unknown := unknown_columns(result):
        yield f"Unknown in this trace: {', '.join(c.name for c in unknown)}."
