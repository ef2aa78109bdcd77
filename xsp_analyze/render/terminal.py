"""Results as tables for a terminal, fitted to its width."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from xsp_analyze.render.column_fit import GAP, NO_LIMIT, Fitted, Screen, Wanted, fit, natural, unit_of, with_names
from xsp_analyze.render.names import cut
from xsp_analyze.render.shown import ledger_lines, provenance_line, shown_columns, unknown_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.render.shown import ShownColumn

__all__ = ["Screen", "render", "render_many"]


def render(result: Result, screen: Screen | None = None) -> str:
    """Title, table, what the table leaves out, warnings, provenance."""
    return render_many([result], screen)


def render_many(results: Sequence[Result], screen: Screen | None = None) -> str:
    """One table after another; warnings and provenance, which they share, once at the end."""
    screen = screen or Screen()
    out = StringIO()
    console = Console(
        file=out,
        width=screen.width or NO_LIMIT,
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
    hidden = _hidden(result, screen)
    columns = _labelled(shown_columns(result, screen.rows), hidden)
    fitted = [with_names(f) for f in fit([natural(c, screen) for c in columns], Wanted(result, screen))]
    console.print(Text(f"{result.analysis.id}  {result.analysis.title}", style="bold"))
    if result.table.height:
        for heading in _heading_lines(fitted):
            console.print(heading, no_wrap=True, overflow="ignore", crop=False)
        console.file.writelines(f"{line}\n" for line in _rows(fitted))
        if hidden:
            rest = Text(_joined([f.column.rest for f in fitted], fitted), style="italic")
            console.print(rest, no_wrap=True, overflow="ignore", crop=False)
    else:
        console.print(Text("No rows.", style="dim"))
    shown = {f.column.heading for f in fitted}
    for line in _left_out(result, screen, [c.heading for c in columns if c.heading not in shown]):
        console.print(Text(line, style="dim"))
    console.print()


def _labelled(columns: Sequence[ShownColumn], hidden: int) -> list[ShownColumn]:
    """The columns, with how many rows are not shown in the first that holds text."""
    label = next((i for i, c in enumerate(columns) if not c.is_number), None) if hidden else None
    return [replace(c, rest=f"and {hidden:,} more") if i == label else c for i, c in enumerate(columns)]


def _heading_lines(columns: Sequence[Fitted]) -> Iterator[Text]:
    """Headings that end on one line, their units beneath, and a rule."""
    height = max(len(f.heading) for f in columns)
    for line in range(height):
        parts = [([""] * (height - len(f.heading)) + f.heading)[line] for f in columns]
        yield Text(_joined(parts, columns), style="bold")
    units = [unit_of(f.column) for f in columns]
    if any(units):
        yield Text(_joined(units, columns), style="dim")
    yield Text("\u2500" * (sum(f.width for f in columns) + GAP * (len(columns) - 1)), style="dim")


def _rows(columns: Sequence[Fitted]) -> Iterator[str]:
    """Plain lines: rich's own tables take minutes at a million rows."""
    for row in zip(*(f.column.cells for f in columns), strict=True):
        yield _joined(row, columns)


def _joined(cells: Iterable[str], columns: Sequence[Fitted]) -> str:
    return (" " * GAP).join(_padded(cell, f) for cell, f in zip(cells, columns, strict=True)).rstrip()


def _padded(cell: str, fitted: Fitted) -> str:
    text = cut(cell, fitted.width)
    blank = " " * (fitted.width - cell_len(text))
    return blank + text if fitted.column.is_number else text + blank


def _hidden(result: Result, screen: Screen) -> int:
    return max(result.table.height - screen.rows, 0) if screen.rows is not None else 0


def _left_out(result: Result, screen: Screen, narrow: Sequence[str]) -> Iterator[str]:
    if hidden := _hidden(result, screen):
        yield f"{hidden:,} more rows: --all shows them, -f csv writes all."
    if narrow:
        yield f"Too narrow for: {', '.join(narrow)}. Widen the window, or use -f csv."
    if unknown := unknown_columns(result):
        yield f"Unknown in this trace: {', '.join(c.name for c in unknown)}."
