"""Which columns of a table fit a screen, and how wide each is."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len

from xsp_analyze.render.names import fitted as fitted_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.render.shown import ShownColumn

__all__ = ["GAP", "NO_LIMIT", "Fitted", "Screen", "Wanted", "fit", "natural", "unit_of", "with_names"]

GAP = 2
"""Blank cells between two columns."""

NO_LIMIT = 1 << 16
"""How wide a screen is that has no width."""

_NARROWEST_TEXT = 16
_NARROWEST_KEY = 0.3  # of the screen: names are what a row is known by
_HEADING_LINES = 2
_LONG = 24


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

    column: ShownColumn
    heading: list[str]
    width: int


class Wanted:
    """How much room there is, and which columns to show first: those that the analysis draws."""

    def __init__(self, result: Result, screen: Screen) -> None:
        self.width = screen.width or NO_LIMIT
        self.drawn = frozenset(result.analysis.figure.y if result.analysis.figure else ())

    def least(self, fitted: Fitted) -> int:
        """The narrowest at which the column can be read; numbers are never cut."""
        if fitted.column.is_number:
            return fitted.width
        return min(
            fitted.width,
            max(_NARROWEST_TEXT, int(self.width * _NARROWEST_KEY)) if _is_name(fitted) else _NARROWEST_TEXT,
        )


def _is_name(fitted: Fitted) -> bool:
    return fitted.column.is_key and fitted.width > _NARROWEST_TEXT


def natural(column: ShownColumn, screen: Screen) -> Fitted:
    """The column at the width it would like: its widest cell, and its heading on two lines at most."""
    widest = max((cell_len(cell) for cell in (*column.cells, column.rest)), default=1)
    if screen.width is None and screen.text is not None and not column.is_number:
        widest = min(widest, screen.text)
    words = column.heading.split() or [""]
    width = max(widest, *(cell_len(w) for w in words), len(unit_of(column)))
    heading = textwrap.wrap(column.heading, width, break_long_words=False) or [""]
    while len(heading) > _HEADING_LINES:
        width += 1
        heading = textwrap.wrap(column.heading, width, break_long_words=False)
    return Fitted(column, heading, max(width, *(cell_len(line) for line in heading)))


def unit_of(column: ShownColumn) -> str:
    """The unit where the heading does not name it already."""
    return "" if column.unit in column.heading.split() else column.unit


def fit(columns: Sequence[Fitted], wanted: Wanted) -> list[Fitted]:
    """The columns that fit with text cut to a readable least, in their order; spare room goes back to the text."""
    chosen = _chosen(columns, wanted)
    widths = {i: wanted.least(columns[i]) for i in chosen}
    spare = max(wanted.width - sum(widths.values()) - GAP * (len(chosen) - 1), 0)
    hungry = sorted((columns[i].width - widths[i], i) for i in chosen)
    for place, (wish, i) in enumerate(hungry):  # those that wish for little first, so that the rest share what is left
        more = min(wish, spare // (len(hungry) - place))
        widths[i] += more
        spare -= more
    return [replace(columns[i], width=widths[i]) for i in chosen]


def _chosen(columns: Sequence[Fitted], wanted: Wanted) -> list[int]:
    """Which columns to show: keys, what is drawn, the first time, the others in their order, lists and paths last.

    One at least.
    """
    first_time = next((i for i, f in enumerate(columns) if f.column.is_time and not f.column.is_key), -1)

    def rank(i: int) -> int:
        column = columns[i].column
        if column.is_key:
            return 0
        if column.name in wanted.drawn:
            return 1
        if i == first_time:
            return 2
        return 4 if _is_long(columns[i]) else 3

    chosen: list[int] = []
    used = -GAP
    for i in sorted(range(len(columns)), key=lambda i: (rank(i), i)):
        used += wanted.least(columns[i]) + GAP
        if used > wanted.width and chosen:
            break
        chosen.append(i)
    return sorted(chosen)


def _is_long(fitted: Fitted) -> bool:
    """Whether the column holds lists, paths or sentences rather than names or numbers."""
    column = fitted.column
    return not column.is_number and not column.name.endswith("name") and fitted.width > _LONG


def with_names(fitted: Fitted) -> Fitted:
    if fitted.column.is_number:
        return fitted
    return replace(fitted, column=replace(fitted.column, cells=fitted_names(fitted.column.cells, fitted.width)))
