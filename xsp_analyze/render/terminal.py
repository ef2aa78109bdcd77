"""Results as tables for a terminal, fitted to its width."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from xsp_analyze.render.shown import ledger_lines, provenance_line, shown_columns, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.render.shown import ShownColumn

__all__ = ["Screen", "render", "render_many"]

_GAP = 2  # blank cells between two columns
_NARROWEST_TEXT = 16
_NO_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a table will be read: cells across (null: as many as needed), colours, and most rows (null: all)."""

    width: int | None = None
    color: bool = False
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class _Fitted:
    column: ShownColumn
    heading: list[str]
    width: int


def render(result: Result, screen: Screen | None = None) -> str:
    """Title, table, what the table leaves out, warnings, provenance."""
    return render_many([result], screen)


def render_many(results: Sequence[Result], screen: Screen | None = None) -> str:
    """One table after another; warnings and provenance, which they share, once at the end."""
    screen = screen or Screen()
    out = StringIO()
    console = Console(
        file=out,
        width=screen.width or _NO_LIMIT,
        force_terminal=screen.color,
        no_color=not screen.color,
        color_system="standard" if screen.color else None,
        emoji=False,
        highlight=False,
        markup=False,
    )
    for result in results:
        _print_table(result, screen, console)
    for line in dict.fromkeys(line for r in results for line in ledger_lines(r)):
        console.print(Text(line, style="yellow" if line.startswith("warning") else "red"))
    for line in dict.fromkeys(filter(None, map(provenance_line, results))):
        console.print(Text(line, style="dim"))
    return out.getvalue()


def _print_table(result: Result, screen: Screen, console: Console) -> None:
    columns = shown_columns(result, screen.rows)
    fitted = _fit([_natural(c) for c in columns], screen.width or _NO_LIMIT)
    console.print(Text(f"{result.analysis.id}  {result.analysis.title}", style="bold"))
    if result.table.height:
        for heading in _heading_lines(fitted):
            console.print(heading, no_wrap=True, overflow="ignore", crop=False)
        console.file.writelines(f"{line}\n" for line in _rows(fitted))
    else:
        console.print(Text("No rows.", style="dim"))
    shown = {f.column.heading for f in fitted}
    for line in _left_out(result, screen, [c.heading for c in columns if c.heading not in shown]):
        console.print(Text(line, style="dim"))
    console.print()


def _natural(column: ShownColumn) -> _Fitted:
    """The column at the width it would like: its widest cell, and its heading wrapped at words."""
    widest = max((cell_len(cell) for cell in column.cells), default=1)
    words = column.heading.split() or [""]
    width = max(widest, *(cell_len(w) for w in words), len(column.unit))
    heading = textwrap.wrap(column.heading, width, break_long_words=False) or [""]
    if column.unit and column.unit not in column.heading.split():
        heading.append(column.unit)
    return _Fitted(column, heading, max(width, *(cell_len(line) for line in heading)))


def _fit(columns: Sequence[_Fitted], width: int) -> list[_Fitted]:
    """The columns that fit with text cut to a readable least, in their order; spare room goes back to the text."""
    chosen = _chosen(columns, width)
    widths = {i: _least(columns[i]) for i in chosen}
    spare = max(width - sum(widths.values()) - _GAP * (len(chosen) - 1), 0)
    hungry = sorted((columns[i].width - widths[i], i) for i in chosen)
    for place, (wish, i) in enumerate(hungry):  # those that wish for little first, so that the rest share what is left
        more = min(wish, spare // (len(hungry) - place))
        widths[i] += more
        spare -= more
    return [replace(columns[i], width=widths[i]) for i in chosen]


def _least(fitted: _Fitted) -> int:
    return fitted.width if fitted.column.is_number else min(fitted.width, _NARROWEST_TEXT)


def _chosen(columns: Sequence[_Fitted], width: int) -> list[int]:
    """Which columns to show: keys before all, then the first time, then the others in their order; one at least."""
    first_time = next((i for i, f in enumerate(columns) if f.column.is_time and not f.column.is_key), -1)
    rank = [0 if f.column.is_key else 1 if i == first_time else 2 for i, f in enumerate(columns)]
    chosen: list[int] = []
    used = -_GAP
    for i in sorted(range(len(columns)), key=lambda i: (rank[i], i)):
        used += _least(columns[i]) + _GAP
        if used > width and chosen:
            break
        chosen.append(i)
    return sorted(chosen)


def _heading_lines(columns: Sequence[_Fitted]) -> Iterator[Text]:
    height = max(len(f.heading) for f in columns)
    for line in range(height):
        parts = [([""] * (height - len(f.heading)) + f.heading)[line] for f in columns]
        yield Text(_joined(parts, columns), style="bold")
    yield Text("\u2500" * (sum(f.width for f in columns) + _GAP * (len(columns) - 1)), style="dim")


def _rows(columns: Sequence[_Fitted]) -> Iterator[str]:
    """Plain lines: rich's own tables take minutes at a million rows."""
    for row in zip(*(f.column.cells for f in columns), strict=True):
        yield _joined(row, columns)


def _joined(cells: Iterable[str], columns: Sequence[_Fitted]) -> str:
    return (" " * _GAP).join(_padded(cell, f) for cell, f in zip(cells, columns, strict=True)).rstrip()


def _padded(cell: str, fitted: _Fitted) -> str:
    text = _cut(cell, fitted.width)
    blank = " " * (fitted.width - cell_len(text))
    return blank + text if fitted.column.is_number else text + blank


def _cut(text: str, width: int) -> str:
    """The text with its middle left out: kernels differ at both ends of their names."""
    if cell_len(text) <= width:
        return text
    tail = width // 3
    return f"{set_cell_size(text, width - tail - 1)}…{text[-tail:]}"


def _left_out(result: Result, screen: Screen, narrow: Sequence[str]) -> Iterator[str]:
    hidden = result.table.height - screen.rows if screen.rows is not None else 0
    if hidden > 0:
        yield f"{hidden:,} more rows; --rows 0 shows all, -f csv writes all."
    if narrow:
        yield f"Too narrow for: {', '.join(narrow)}. Widen the window, or use -f csv."
    if unknown := unknown_columns(result):
        yield f"Unknown in this trace: {', '.join(c.name for c in unknown)}."
