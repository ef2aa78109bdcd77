"""The tables that nvprof writes: by which names a database of it is known; headers and rows of what it prints."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["MAX_CHARACTERS", "PREFIX", "STRINGS", "Header", "Printed", "header_of", "is_nvprof", "rows"]

PREFIX = "CUPTI_ACTIVITY_KIND_"
STRINGS = "StringTable"


def is_nvprof(tables: frozenset[str]) -> bool:
    """Whether tables of these names are an nvprof database's."""
    return STRINGS in tables and any(name.startswith(PREFIX) for name in tables)


_LOG = re.compile(r"==(\d{1,9})== ")
_GAP = re.compile(r"\s{2,}")
_TRACE, _SUMMARY = {"Start", "Duration", "Name"}, {"Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"}
_GROUP = re.compile(r"\s*([A-Z][\w ]*):\s+(?=[\d.]+%\s)")
_PERCENT = re.compile(r"\s*[\d.]+%\s")
_START = re.compile(r"\s*(?:[\d.]+(?:[num]?s)|-)\s")
_PARTIAL = re.compile(r"[ \t]+|\s*[\d.]+(?:%|[num]?s)?[ \t]*")  # how a row begins, and no line end
_TIME_UNITS = ("s", "ms", "us", "ns")
MAX_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """A table's columns; `is_csv` tells which of the two forms it has, `is_trace` a trace from a summary."""

    columns: tuple[str, ...]
    is_csv: bool
    is_trace: bool

    @property
    def time_column(self) -> str:
        """A column whose values are times in every row."""
        return "Start" if self.is_trace else "Time"


@dataclass(slots=True)
class Printed:
    """What was odd about a file, counted while its rows are read."""

    bad_rows: int = 0  # rows with too few or too many values
    is_cut_off: bool = False  # the last row is such, and no line end follows it


def header_of(line: str) -> Header | None:
    """The header that stands in this line, or None."""
    if len(line) > MAX_CHARACTERS or "Name" not in line:
        return None
    is_csv = '"Name"' in line
    cells = tuple(_cells(line)) if is_csv else tuple(cell.removesuffix("*") for cell in _split(line))
    names = set(cells)
    if len(names) < len(cells) or (not is_csv and cells[-1:] != ("Name",)):
        return None
    if names >= _TRACE:
        return Header(cells, is_csv, is_trace=True)
    return Header(cells, is_csv, is_trace=False) if names >= _SUMMARY else None


def rows(lines: Iterable[str], seen: Printed) -> Iterator[tuple[Header, Mapping[str, str], int | None]]:
    """Each row of each table by column, its values as printed, with the process that `==PID==` said last.

    A value of a CSV table has the unit of the table's second line appended, where it has one.
    """
    header: Header | None = None
    units: Mapping[str, str] | None = None
    process: int | None = None
    group = ""
    for line in lines:
        seen.is_cut_off = False
        if match := _LOG.match(line):
            process = int(match[1])
            if "result:" in line or "API calls:" in line:
                group = "API calls" if "API calls" in line else ""
            continue
        if new := header_of(line):
            header, units = new, None
            continue
        if header is None or not _is_row(line, header, waits=units is None):
            seen.is_cut_off = header is not None and bool(_PARTIAL.fullmatch(line))
            continue
        values = _values(line, header)
        if header.is_csv and units is None:
            units = dict(zip(header.columns, values, strict=False))
            if units.get(header.time_column) in _TIME_UNITS:
                continue
            units = {}
        complete = line.endswith("\n") or _is_complete(line)
        if len(values) != len(header.columns) or not complete:
            seen.bad_rows += 1
            seen.is_cut_off = not line.endswith("\n")
            continue
        row = dict(zip(header.columns, values, strict=True))
        group = row.get("Type") or group
        yield header, {**{k: _with_unit(v, (units or {}).get(k, "")) for k, v in row.items()}, "Type": group}, process


def _is_row(line: str, header: Header, *, waits: bool) -> bool:
    """Whether the line is a row of the table, and not something that the program printed."""
    if header.is_csv:
        many = (line.count(",") + 1) * 2 > len(header.columns)
        return bool(line.strip()) and (waits or line[0] in '"-,.0123456789') and (many or not line.endswith("\n"))
    if header.is_trace:
        return bool(_START.match(line))
    return bool(_GROUP.match(line) or _PERCENT.match(line))


def _values(line: str, header: Header) -> Sequence[str]:
    if header.is_csv:
        return _cells(line)
    if header.is_trace or "Type" not in header.columns:
        return _split(line, len(header.columns) - 1)
    group = _GROUP.match(line)
    rest = line[group.end() :] if group else line
    return [group[1] if group else "", *_split(rest, len(header.columns) - 2)]


def _split(line: str, max_splits: int = 0) -> list[str]:
    """What stands between gaps of two blanks or more; the last of them, with `max_splits`, to the end of the line."""
    return _GAP.split(line.strip(), maxsplit=max_splits) if line.strip() else []


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r\n")]), [])
    except csv.Error:
        return []


def _is_complete(line: str) -> bool:
    """Whether a last line without a line end may be complete: what it opens, it closes."""
    return line.count('"') % 2 == 0 and all(line.count(a) <= line.count(b) for a, b in ("()", "[]"))


def _with_unit(value: str, unit: str) -> str:
    return value + unit if value and unit else value
