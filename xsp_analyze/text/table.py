"""What the rows add up to that a table does not show: sums, where a sum over rows says something."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Role
from xsp_analyze.text.units import FULL_COVERAGE, UNKNOWN, bare, count, duration, number, scales_of, share
from xsp_model.errors import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Column, Result
    from xsp_analyze.text.units import Scale

__all__ = [
    "Table",
    "TextColumn",
    "clean",
    "heading",
    "ledger_lines",
    "of_rows",
    "on_the_point",
    "provenance_line",
    "short_name",
    "shown_columns",
    "shown_table",
    "split_rows",
    "sums_of_the_rest",
    "unknown_columns",
]

# A table as text, for any renderer: columns of cells under headings, and sentences below it.
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


def sums_of_the_rest(result: Result, shown: int) -> Mapping[str, int | float | None]:
    """The sums over the rows after the first `shown`, by column; null where one of these values is unknown.

    Shares of several steps, which stand in one table where each is answered for itself, are left out.
    """
    rest = result.table.slice(shown)
    several = "step" in rest.columns
    names = [
        name for name in result.analysis.additive if name in rest.columns and not (several and name.endswith("share"))
    ]
    if not names or rest.is_empty():
        return {}
    sums = (pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in names)
    return rest.select(sums).row(0, named=True)


# A result as people read it: words for headings, one unit a column, text for every cell.
_UNIT_SUFFIXES = ("_ns", "_bytes", "_per_s")
_UNIT_IN_HEADER = re.compile(r" \([^()]*\)$")
_PREFIX = re.compile(r"(?:void )?(?:(?:\w+|\(anonymous namespace\))::)*")
_WORRYING = ("warning", "error")
_TAKEN = {
    "model": "model latency",
    "layers": "layer latency",
    "kernels": "kernels and device time",
    "other_batch_sizes": "A01, A15 and B38 also",
}


def short_name(name: str, max_length: int = 60) -> str:
    """A kernel's name without its return type, namespaces and parameters, cut to so many characters."""
    prefix = _PREFIX.match(clean(name))
    short = bare(clean(name)[prefix.end() :] if prefix else clean(name))
    return short if len(short) <= max_length else f"{short[: max_length - 1]}\u2026"


def unknown_columns(result: Result) -> list[Column]:
    """Columns that are null in every row: the trace could not say. None where that would be all of them."""
    height = result.table.height
    unknown = [c for c in result.columns if result.table[c.name].null_count() == height]
    return unknown if 0 < len(unknown) < len(result.columns) and height else []


def shown_table(result: Result, max_rows: int | None = None) -> Table:
    """The result's columns that hold something, under its title."""
    return Table(f"{result.analysis.id}  {result.analysis.title}", shown_columns(result, max_rows))


def shown_columns(result: Result, max_rows: int | None = None) -> list[TextColumn]:
    """The columns that hold something, in their order; at most so many rows, the others in sum."""
    left_out = {c.name for c in unknown_columns(result)}
    table = result.table if max_rows is None else result.table.head(max_rows)
    rest = sums_of_the_rest(result, table.height)
    columns = [c for c in result.columns if c.name not in left_out]
    numbers = [c for c in columns if table[c.name].dtype.is_numeric()]
    scales = dict(
        zip((c.name for c in numbers), scales_of([(c, table[c.name].to_list()) for c in numbers]), strict=True)
    )
    shown = [_text_column(c, table[c.name], scales.get(c.name)) for c in columns]
    return [replace(s, rest=_in_sum(rest[s.name], scales.get(s.name)) if s.name in rest else "") for s in shown]


def _in_sum(value: float | None, scale: Scale | None) -> str:
    return UNKNOWN if value is None or scale is None else number(value, scale)


def _text_column(column: Column, series: pl.Series, scale: Scale | None) -> TextColumn:
    """Text for every cell; numbers in the scale, which what is no number has none of."""
    cells = [number(v, scale) if scale and isinstance(v, int | float) else _text(v) for v in series.to_list()]
    return TextColumn(
        heading(column),
        cells,
        scale.unit if scale else "",
        is_number=scale is not None,
        is_key=column.role is Role.KEY,
        name=column.name,
    )


def heading(column: Column) -> str:
    """What stands over the column, without its unit."""
    return _UNIT_IN_HEADER.sub("", column.header) if column.header else _without_unit_suffix(column.name)


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(str(value))


def _without_unit_suffix(name: str) -> str:
    for suffix in _UNIT_SUFFIXES:
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def ledger_lines(result: Result) -> list[str]:
    """One line for each warning and error of the ledger."""
    return [_finding(row) for row in result.ledger.iter_rows(named=True) if row["severity"] in _WORRYING]


def _finding(row: Mapping[str, Any]) -> str:
    time = row["duration_ns"]
    counted = count(row["count"]) + (f", {duration(time)}" if time is not None else "")
    advice = f" {row['advice']}" if row["advice"] else ""
    return clean(f"{row['severity']}: {row['detail']} ({counted}).{advice}")


def provenance_line(result: Result) -> str:
    """Where the numbers come from, in one line; empty where nothing is known. What is only for programs is left out."""
    facts = {
        key: value
        for key, value in result.provenance.items()
        if value not in (None, "", [], ()) and not isinstance(value, bool) and (key, value) != ("run_count", 1)
    }
    covered = facts.pop("layer_coverage", None)
    if isinstance(covered, float) and covered < FULL_COVERAGE:
        facts["layer_coverage"] = f"{share(covered)} of device time"
    taken = facts.pop("taken_from", None)
    if isinstance(taken, dict):  # a profile: this names the files, and says what each is for
        facts.pop("sources", None)
    parts = [f"{_without_unit_suffix(key)}: {_several(value)}" for key, value in facts.items()]
    return clean("; ".join(([_sources_sentence(taken)] if isinstance(taken, dict) else []) + parts))


def _sources_sentence(sources: Mapping[str, object]) -> str:
    """Which file of a profile each kind of number is taken from: `model latency from run.json, ...`."""
    return ", ".join(f"{_TAKEN.get(what, what)} from {files}" for what, files in sources.items())


def _several(value: object) -> str:
    """The value as words; of a source its file's name, as digests are for programs."""
    if isinstance(value, dict):
        return str(value["file"]) if "file" in value else ", ".join(f"{k} {_several(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_several(item) for item in value)
    return str(value)
