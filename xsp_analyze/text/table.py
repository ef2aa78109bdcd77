"""A table as text, for any renderer: columns of cells under headings, and sentences below it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Table", "TextColumn", "of_rows", "on_the_point", "split_rows"]

_NUMBER = re.compile(r"(?:[<>+]?-?[\d\u202f]+(?:\.\d+)?|-|)$")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One column, ready to print: the unit stands in the heading, numbers stand right and are never cut.

    `is_key`: rows are known by it, so its text is cut last. `priority`: where there is no room, columns of the largest
    number are left out first. `rest` is what the rows that are not among the cells add up to; empty where that says
    nothing. `name` is what programs call it.
    """

    heading: str
    cells: Sequence[str]
    unit: str = ""
    is_number: bool = False
    is_key: bool = False
    priority: int = 0
    rest: str = ""
    name: str = ""

    @property
    def unit_beside(self) -> str:
        """The unit where the heading does not name it already."""
        return "" if self.unit in self.heading.split() else self.unit


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal height under a title, and what stands below them."""

    title: str
    columns: Sequence[TextColumn]
    notes: Sequence[str] = ()

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """The cells, a row at a time."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def of_rows(
    title: str,
    columns: Sequence[tuple[str, str, bool, int]],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> Table:
    """A table of rows of text; `columns` are heading, unit, whether it holds numbers, and priority.

    The first is the key. A column in which no row has anything is left out.
    """
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    made = [
        TextColumn(heading, held, unit, is_number=number, is_key=at == 0, priority=priority)
        for at, ((heading, unit, number, priority), held) in enumerate(zip(columns, cells, strict=True))
    ]
    return Table(title, [column for column in made if any(column.cells)], notes)


def on_the_point(column: TextColumn, digit: str = " ", point: str = " ") -> TextColumn:
    """Numbers with blanks behind them, so that their decimal points stand below each other; text stays as it is.

    `digit` and `point` are blanks as wide as these.
    """
    cells = (*column.cells, column.rest)
    if not column.is_number or not all(map(_NUMBER.match, cells)):
        return column
    decimals = [len(cell.partition(".")[2]) for cell in cells]
    longest = max(decimals)
    behind = [(point if longest and not own else "") + digit * (longest - own) for own in decimals]
    *padded, rest = (f"{cell}{blank}" if cell else "" for cell, blank in zip(cells, behind, strict=True))
    return replace(column, cells=padded, rest=rest)


def split_rows(table: Table, first: int) -> tuple[Table, Table | None]:
    """The first rows and the others, with the same headings; null where there are not more than a few others."""
    height = len(table.columns[0].cells) if table.columns else 0
    if height <= first + first // 2:
        return table, None
    cut = (slice(None, first), slice(first, None))
    one, two = ([replace(column, cells=column.cells[part]) for column in table.columns] for part in cut)
    return replace(table, columns=one), replace(table, columns=two)
