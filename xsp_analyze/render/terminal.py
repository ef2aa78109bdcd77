"""Tables for a terminal, fitted to its width."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from xsp_analyze.render.origin import origin_line, shared_ledger_lines
from xsp_analyze.text.table import on_the_point, shown_table, unknown_columns
from xsp_analyze.text.units import count, cut, plain_spaces
from xsp_analyze.text.units import fit_names as fitted_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xsp_analyze.core import Column, Result
    from xsp_analyze.text.table import Table, TextColumn

__all__ = [
    "GAP",
    "NO_LIMIT",
    "Fitted",
    "Screen",
    "console_on",
    "fit",
    "render",
    "render_many",
    "table_lines",
    "wrap_line",
]

# Which columns of a table fit a screen, and how wide each is.

GAP = 2
"""Blank cells between two columns."""
NO_LIMIT = 1 << 16
"""How wide a screen is that has no width."""
_MIN_TEXT = 16
_MIN_KEY_SHARE = 0.3  # of the screen: names are what a row is known by
_HEADING_LINES = 2


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a table will be read: cells across (null: as many as needed), colours, and most rows (null: all).

    `text` is how many cells the text of a column may take where there is no width (null: as many as it has).
    """

    width: int | None = None
    color: bool = False
    rows: int | None = None
    text: int | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column with the lines of its heading, and the cells across that it gets."""

    column: TextColumn
    heading: list[str]
    width: int


def fit(columns: Sequence[TextColumn], screen: Screen) -> list[Fitted]:
    """The columns that fit with text cut to a readable minimum, in their order; spare room goes back to the text."""
    natural = [_natural(on_the_point(column), screen) for column in columns]
    room = screen.width or NO_LIMIT
    minima = [_min_width(fitted, room) for fitted in natural]
    chosen = _columns_to_show(natural, minima, room)
    widths = {i: minima[i] for i in chosen}
    spare = max(room - sum(widths.values()) - GAP * (len(chosen) - 1), 0)
    hungry = sorted((natural[i].width - widths[i], i) for i in chosen)
    for served, (wish, i) in enumerate(hungry):  # those that wish for little first, so that the rest share what is left
        more = min(wish, spare // (len(hungry) - served))
        widths[i] += more
        spare -= more
    return [_cut(replace(natural[i], width=widths[i])) for i in chosen]


def _natural(column: TextColumn, screen: Screen) -> Fitted:
    """The column at the width it would like: its widest cell, and its heading on two lines at most."""
    widest = max((cell_len(cell) for cell in (*column.cells, column.rest)), default=1)
    if screen.width is None and screen.text is not None and not column.is_number:
        widest = min(widest, screen.text)
    tokens = column.heading.split() or [""]
    width = max(widest, *(cell_len(w) for w in tokens), len(column.unit_beside), 1)
    heading = textwrap.wrap(column.heading, width, break_long_words=False) or [""]
    while len(heading) > _HEADING_LINES:
        width += 1
        heading = textwrap.wrap(column.heading, width, break_long_words=False)
    return Fitted(column, heading, max(width, *(cell_len(line) for line in heading)))


def _min_width(fitted: Fitted, room: int) -> int:
    """The narrowest at which the column can be read; numbers are never cut."""
    if fitted.column.is_number:
        return fitted.width
    is_name = fitted.column.is_key and fitted.width > _MIN_TEXT
    return min(fitted.width, max(_MIN_TEXT, int(room * _MIN_KEY_SHARE)) if is_name else _MIN_TEXT)


def _columns_to_show(columns: Sequence[Fitted], minima: Sequence[int], room: int) -> list[int]:
    """Which columns to show, by their priority and then in their order; one at least."""
    chosen: list[int] = []
    used = -GAP
    for i in sorted(range(len(columns)), key=lambda i: (columns[i].column.priority, i)):
        used += minima[i] + GAP
        if used > room and chosen:
            break
        chosen.append(i)
    return sorted(chosen)


def _cut(fitted: Fitted) -> Fitted:
    """The column with its text cut to its width."""
    if fitted.column.is_number:
        return fitted
    return replace(fitted, column=replace(fitted.column, cells=fitted_names(fitted.column.cells, fitted.width)))


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
