"""Finds the tables in a log: their headers and records, among whatever else the program and the profiler printed."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_ingest.files.content import MAX_LINE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Header", "Log", "is_header", "records"]

_NAMES = ("Kernel Name", "Function Name", "Demangled Name")
_HEADER = re.compile(r'\s*"?(?:ID|Process ID)"?\s*[,;\t].*(?:Kernel|Function|Demangled) Name')
_RECORD = re.compile(r'\s*(?:"\d*\s*"|\d*)\s*[,;\t]')  # a kernel's number, or nothing before a row of units
_LOG_LINE = re.compile(r"==[A-Z]+==")


def is_header(line: str) -> bool:
    """Whether the line is the header of a table of kernels."""
    return bool(_HEADER.match(line.lstrip("\ufeff")))


@dataclass(frozen=True, slots=True)
class Header:
    """One table's columns and what separates them; `number` counts the tables of the file."""

    columns: Sequence[str]
    separator: str
    number: int


@dataclass(slots=True)
class Log:
    """What was met besides records, counted while reading."""

    complaints: list[str] = field(default_factory=list)  # lines of the profiler's that say ERROR or WARNING
    unclosed: int = 0  # records that no quote closes
    is_cut_off: bool = False  # the last one is such


def records(lines: Iterator[str], log: Log) -> Iterator[tuple[Header, list[str]]]:
    """Each record with the header above it; a record may run over several lines inside quotes."""
    header: Header | None = None
    pending = ""
    for line in lines:
        if pending and not _starts_anew(line, header):
            pending += line
        else:
            log.unclosed += _is_lost(pending, header)
            pending = line
        if pending.count('"') % 2:
            if len(pending) > MAX_LINE_CHARACTERS:
                log.unclosed += _is_lost(pending, header)
                pending = ""
            continue
        text, pending = pending, ""
        if is_header(text):
            header = _header(text, 0 if header is None else header.number + 1)
        elif header is not None and _RECORD.match(text) and not _LOG_LINE.match(text):
            log.is_cut_off = text.endswith(header.separator)  # without even a line's end
            cells = _cells(text, header.separator)
            log.unclosed += not cells
            yield header, cells
        elif _LOG_LINE.match(text) and ("ERROR" in text or "WARNING" in text):
            log.complaints.append(text.strip())
    log.is_cut_off |= _is_lost(pending, header)


def _is_lost(pending: str, header: Header | None) -> bool:
    """Whether these lines were a record that nothing closes, not something the program printed."""
    return header is not None and bool(_RECORD.match(pending))


def _starts_anew(line: str, header: Header | None) -> bool:
    """Whether the line surely begins something new, so that the record before it was cut off."""
    return header is None or bool(_LOG_LINE.match(line)) or is_header(line) or bool(re.match(r'"\d+","\d+","', line))


def _header(line: str, number: int) -> Header:
    separator = next(c for c in line if c in ",;\t")
    return Header([cell.strip() for cell in _cells(line.lstrip("\ufeff"), separator)], separator, number)


def _cells(text: str, separator: str) -> list[str]:
    """The cells; none where the line is no CSV, as with a cell of more than 128 KiB or a line end out of place."""
    try:
        return next(csv.reader([text.rstrip("\n")], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []
