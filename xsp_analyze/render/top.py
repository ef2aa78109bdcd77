"""What takes most, at a glance: names with their time, their share and a bar, the others in sum."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.cells import cell_len
from rich.text import Text

from xsp_analyze.core import Column
from xsp_analyze.render.csv_text import write_csv
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.markdown import escape_markdown, table_lines
from xsp_analyze.text.table import clean, of_rows
from xsp_analyze.text.units import count, duration, fit_names, number, scale_of, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Entry", "Ranking", "as_csv", "as_json", "as_markdown", "bar", "ranking_lines"]

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


# What `xsp top` ranks, for programs and documents: JSON, CSV, Markdown.

_CSV = {"ranking": pl.String, "rank": pl.Int64, "name": pl.String, "time_ns": pl.Float64, "share": pl.Float64}


def as_json(rankings: Sequence[Ranking], max_rows: int, about: Mapping[str, object]) -> str:
    """One document, as docs/top.schema.json has it: `about`, then the rankings, each with at most so many rows."""
    document = {**about, "rankings": [_ranking(each, max_rows) for each in rankings]}
    return json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _ranking(ranking: Ranking, max_rows: int) -> dict[str, Any]:
    rest = ranking.rows[max_rows:]
    return {
        "ranking": ranking.identity,
        "title": ranking.title,
        "whole_ns": ranking.whole_ns,
        "rows": [
            {"rank": rank, "name": row.name, **row.facts, "time_ns": row.time_ns, "share": _share(row, ranking)}
            for rank, row in enumerate(ranking.rows[:max_rows], 1)
        ],
        "more_count": len(rest),
        "more_ns": sum(row.time_ns for row in rest),
        "outside_ns": ranking.outside_ns,
    }


def as_csv(rankings: Sequence[Ranking], max_rows: int, *, raw: bool = False) -> str:
    """A row a layer, kernel or operator, the rankings under one another, at full precision.

    Names that a spreadsheet would run get an apostrophe before them, unless `raw`.
    """
    rows = [
        (ranking.identity, rank, row.name, row.time_ns, _share(row, ranking))
        for ranking in rankings
        for rank, row in enumerate(ranking.rows[:max_rows], 1)
    ]
    return write_csv(pl.DataFrame(rows, _CSV, orient="row").get_columns(), raw=raw)


def as_markdown(rankings: Sequence[Ranking], max_rows: int, sentences: Sequence[str]) -> str:
    """The sentences, and a table a ranking."""
    blocks = [escape_markdown(sentence) for sentence in sentences]
    for ranking in rankings:
        columns = [("name", "", False, 0), ("time", "", True, 1), ("share", "", True, 2)]
        rows = [_texts(clean(row.name), row.time_ns, ranking) for row in ranking.rows[:max_rows]]
        if rest := ranking.rows[max_rows:]:
            rows.append(_texts(f"and {len(rest):,} more", sum(row.time_ns for row in rest), ranking))
        if ranking.outside and ranking.outside_ns:
            rows.append(_texts(ranking.outside, ranking.outside_ns, ranking))
        blocks.append(f"## {escape_markdown(ranking.title)}\n\n" + "\n".join(table_lines(of_rows("", columns, rows))))
    return "\n\n".join(blocks) + "\n"


def _texts(name: str, time_ns: float, ranking: Ranking) -> tuple[str, str, str]:
    return name, duration(time_ns), share(time_ns / ranking.whole_ns if ranking.whole_ns else None)


def _share(row: Entry, ranking: Ranking) -> float | None:
    return row.time_ns / ranking.whole_ns if ranking.whole_ns else None
