"""Which columns of a table fit a screen, and how wide each is."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len

from xsp_analyze.text.names import fit_names as fitted_names
from xsp_analyze.text.table import on_the_point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.text.table import TextColumn

__all__ = ["GAP", "NO_LIMIT", "Fitted", "Screen", "fit"]

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
