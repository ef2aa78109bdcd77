"""What takes most, at a glance: names with their time, their share and a bar, the others in sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from xsp_analyze.core import Column
from xsp_analyze.text.names import fit_names
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count, number, scale_of, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


__all__ = ["Entry", "Ranking", "bar", "ranking_lines"]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_MAX_BAR = 30
_MIN_NAME = 14
_GAPS = 6  # blanks between name, time, share and bar
_SHARE_CELLS = 7


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: its name, its time in ns, and what stands before the name (all of one width).

    `facts` is for programs: what else tells the row apart or explains its time.
    """

    name: str
    time_ns: float
    before: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Everything that has a time, longest first, and the time in ns that shares are of.

    `outside`: how to call what the rows leave of the whole, where they are not all of it. `identity` is what programs
    call the ranking.
    """

    title: str
    rows: Sequence[Entry]
    whole_ns: float
    outside: str | None = None
    identity: str = ""

    @property
    def outside_ns(self) -> float | None:
        """What the rows leave of the whole; null where they do not divide it."""
        return self.whole_ns - sum(row.time_ns for row in self.rows) if self.outside else None

    @property
    def largest_share(self) -> float:
        """Of the whole, what the first row takes."""
        return self.rows[0].time_ns / self.whole_ns if self.rows and self.whole_ns else 0.0


def ranking_lines(ranking: Ranking, max_rows: int, width: int, full: float = 1.0) -> Iterator[Text]:
    """The title, `most` rows, the others as one, what no row holds; no line is wider than `width` cells (from 50 on).

    A bar is as long as there is room for where a row takes the share `full`.
    """
    rows = _rows(ranking, max_rows)
    scale = scale_of(Column("time", None, "", "ns"), [row.time_ns for row, _ in rows])  # type: ignore[arg-type]
    times = [f"{number(row.time_ns, scale)} {scale.unit}" for row, _ in rows]
    time_cells = max(map(len, times), default=0)
    before = max((len(row.before) for row, _ in rows), default=0)
    room = width - before - time_cells - _SHARE_CELLS - _GAPS
    bar_cells = max(min(_MAX_BAR, width // 4, room - _MIN_NAME), 0)
    name_cells = max(_MIN_NAME, room - bar_cells)
    names = _names([row for row, _ in rows], name_cells)
    name_cells = max(map(cell_len, names), default=0)
    yield Text(ranking.title, style="bold")
    for (row, ranked), name, time in zip(rows, names, times, strict=True):
        part = row.time_ns / ranking.whole_ns if ranking.whole_ns else None
        line = Text(
            f"{name}{' ' * (name_cells - cell_len(name))}  {time:>{time_cells}}  {share(part):>{_SHARE_CELLS}}  "
        )
        line.append(bar((part or 0.0) / (full or 1.0), bar_cells) if ranked else "", style="blue")
        line.rstrip()
        if not ranked:
            line.stylize("italic")
        yield line


def _names(rows: Sequence[Entry], cells: int) -> list[str]:
    """What stands before each name, and the name fitted beside it; a row without takes that room too."""
    fits = fit_names([clean(row.name) for row in rows], cells)
    return [f"{row.before}{name}" for row, name in zip(rows, fits, strict=True)]


def _rows(ranking: Ranking, max_rows: int) -> list[tuple[Entry, bool]]:
    """The rows to show, and whether each is one of the ranking's own."""
    shown = [(row, True) for row in ranking.rows[:max_rows]]
    rest = ranking.rows[max_rows:]
    if rest:
        shown.append((Entry(f"and {count(len(rest))} more", sum(row.time_ns for row in rest)), False))
    if ranking.outside and (outside := ranking.outside_ns or 0.0) >= 1:  # ns
        shown.append((Entry(ranking.outside, outside), False))
    return shown


def bar(part: float, cells: int) -> str:
    """A share in 0..1 as a bar of so many cells, to an eighth of one; what is more than nothing shows as something."""
    eighths = round(min(max(part, 0.0), 1.0) * cells * 8) or (1 if part > 0 and cells else 0)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
