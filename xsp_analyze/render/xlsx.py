"""Results as one workbook for spreadsheets: a sheet an analysis, after one on where the numbers come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.render.csv_text import flat
from xsp_analyze.render.origin import origin_line, shared_ledger_lines
from xsp_analyze.text.table import clean, heading
from xsp_analyze.text.units import is_share
from xsp_model import XspError
from xsp_model.errors import install_advice
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Column, Result

__all__ = ["MAX_CHARACTERS", "Book", "book", "render", "render_many", "require_xlsxwriter", "sheet_names"]

MAX_CHARACTERS = 32_767
"""What a cell holds."""

_MAX_NAME = 31
_NOT_IN_NAMES = re.compile(r"[\[\]:*?/\\\x00-\x1f]")
_RESERVED = "history"  # what Excel calls a sheet of its own
_ABOUT = "about"
_EXACT = 2**53  # whole numbers from there on are not exact in a spreadsheet
_ACTS = ("=", "+", "-", "@")
_LONGEST_CODE = len("\\u202e")  # which stands for one character that acts
_WIDEST, _NARROWEST = 60, 9  # characters
_NS_PER_US = 1_000
_DATE = datetime(2000, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # the same results are the same bytes
_FORMATS: Mapping[str, dict[str, Any]] = {
    "heading": {"bold": True, "text_wrap": True, "valign": "bottom", "bottom": 1},
    "text": {},
    "guarded": {"quote_prefix": True},  # stays text when it is edited, too
    "whole": {"num_format": "#,##0"},
    "broken": {"num_format": "#,##0.000"},
    "general": {},
    "share": {"num_format": "0.0%"},
    "bold": {"bold": True},
}


@dataclass(frozen=True, slots=True)
class Book:
    """A workbook as a file, and sentences on what was cut."""

    content: bytes
    notes: Sequence[str]


def render(result: Result) -> bytes:
    """A workbook of one result."""
    return book([result]).content


def render_many(results: Sequence[Result]) -> bytes:
    """A workbook of several."""
    return book(results).content


def require_xlsxwriter() -> Any:  # noqa: ANN401 (an extra)
    """The module; XspError where it is not installed."""
    try:
        import xlsxwriter  # noqa: PLC0415 (an extra; only for workbooks)
    except ImportError as error:
        raise XspError("workbooks need XlsxWriter, which is not installed", advice=install_advice("xlsx")) from error
    return xlsxwriter


def book(results: Sequence[Result]) -> Book:
    """The results, in their order; no cell is a formula, times are in microseconds, unknown is an empty cell."""
    out = BytesIO()
    workbook = require_xlsxwriter().Workbook(
        out,
        {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False},
    )
    workbook.set_properties({"created": _DATE, "comments": "made by xsp"})
    formats = {name: workbook.add_format(look) for name, look in _FORMATS.items()}
    names = sheet_names(results)
    notes = [note for result, name in zip(results, names, strict=True) for note in _cuts(result, name)]
    _about(workbook.add_worksheet(_ABOUT), results, names, notes, formats)
    for result, name in zip(results, names, strict=True):
        _Sheet(workbook.add_worksheet(name), formats).write(result)
    workbook.close()
    return Book(out.getvalue(), notes)


def sheet_names(results: Sequence[Result]) -> list[str]:
    """`A10 kernels by name`: at most 31 characters, none that Excel refuses, no two alike in any case."""
    taken = {_ABOUT, _RESERVED}
    names = []
    for result in results:
        full = _NOT_IN_NAMES.sub(" ", clean(f"{result.analysis.id} {result.analysis.title}")).strip("' ") or "sheet"
        name, number = full[:_MAX_NAME].rstrip("' "), 1
        while name.lower() in taken:
            number += 1
            name = f"{full[: _MAX_NAME - len(str(number)) - 1].rstrip()}~{number}"
        taken.add(name.lower())
        names.append(name)
    return names


def _about(
    sheet: Any,  # noqa: ANN401 (xlsxwriter has no types)
    results: Sequence[Result],
    names: Sequence[str],
    notes: Sequence[str],
    formats: Mapping[str, Any],
) -> None:
    """Sheets with their rows; then what was cut, what the tables leave out, and where the numbers come from."""
    sheet.set_column(0, 0, _MAX_NAME + 2)
    sheet.set_column(1, 1, _WIDEST)
    rows: list[tuple[str, str | int]] = [("sheet", "rows")]
    rows += [(name, result.table.height) for name, result in zip(names, results, strict=True)]
    rows += [("", ""), *(("cut", note) for note in notes)]
    rows += [("ledger", line) for line in shared_ledger_lines(results)]
    rows.append(("provenance", origin_line(results)))
    rows.append(("units", "times in \N{MICRO SIGN}s, sizes in bytes, shares of 1 shown in percent; empty: unknown"))
    for number, (label, value) in enumerate(rows):
        sheet.write_string(number, 0, label, formats["bold"] if number == 0 else formats["text"])
        if isinstance(value, int):
            sheet.write_number(number, 1, value, formats["whole"])
        else:
            sheet.write_string(number, 1, _cell_text(value), formats["bold"] if number == 0 else formats["guarded"])


def _cuts(result: Result, name: str) -> list[str]:
    notes = []
    room = limits().sheet_max_rows - 1
    if result.table.height > room:
        notes.append(f"{name}: the first {room:,} of {result.table.height:,} rows, as a sheet holds no more")
    shown = result.table.head(room)
    long = sum(_long_texts(flat(series)) for series in shown if not series.dtype.is_numeric())
    if long:
        cells = "1 text was" if long == 1 else f"{long:,} texts were"
        notes.append(f"{name}: {cells} cut to {MAX_CHARACTERS:,} characters, as a cell holds no more")
    return notes


def _long_texts(series: pl.Series) -> int:
    texts = series.cast(pl.String)
    perhaps = texts.filter(texts.str.len_chars() > MAX_CHARACTERS // _LONGEST_CODE)
    return sum(len(clean(text)) > MAX_CHARACTERS for text in perhaps)


class _Sheet:
    """One sheet as it is written, a row after another."""

    def __init__(self, sheet: Any, formats: Mapping[str, Any]) -> None:  # noqa: ANN401 (xlsxwriter has no types)
        self.sheet = sheet
        self.formats = formats

    def write(self, result: Result) -> None:
        """Headings, which stay in view and filter, and the rows that there is room for."""
        table = result.table.head(limits().sheet_max_rows - 1)
        columns = [_Series(column, flat(table[column.name])) for column in result.columns]
        for at, column in enumerate(columns):
            self.sheet.write_string(0, at, column.heading, self.formats["heading"])
            self.sheet.set_column(at, at, column.characters)
        self.sheet.freeze_panes(1, 0)
        if columns:
            self.sheet.autofilter(0, 0, table.height, len(columns) - 1)
        for number, row in enumerate(zip(*(column.values for column in columns), strict=True), 1):
            for at, (value, column) in enumerate(zip(row, columns, strict=True)):
                self._cell(number, at, value, column.format)

    def _cell(self, row: int, column: int, value: object, number_format: str) -> None:
        if value is None:
            return
        if isinstance(value, bool):
            self.sheet.write_boolean(row, column, value)
        elif isinstance(value, int | float) and abs(value) <= _EXACT:
            self.sheet.write_number(row, column, value, self.formats[number_format])
        else:
            text = _cell_text(str(value))
            self.sheet.write_string(row, column, text, self.formats["guarded" if text[:1] in _ACTS else "text"])


class _Series:
    """A column as a spreadsheet has it."""

    def __init__(self, column: Column, series: pl.Series) -> None:
        is_time = column.unit == "ns" and series.dtype.is_numeric()
        self.values = (series / _NS_PER_US if is_time else series).to_list()
        unit = "\N{MICRO SIGN}s" if is_time else column.unit
        name = heading(column)
        self.heading = f"{name} ({unit})" if unit and unit not in (*name.split(), "1") else name
        number_format = "whole" if series.dtype.is_integer() and column.unit else "general"
        self.format = "broken" if is_time else "share" if is_share(column) else number_format
        longest = max((len(str(v)) for v in self.values[:100] if isinstance(v, str)), default=0)
        self.characters = min(max(longest, len(max(self.heading.split(), key=len)) + 3, _NARROWEST), _WIDEST)


def _cell_text(text: str) -> str:
    return clean(text)[:MAX_CHARACTERS]
