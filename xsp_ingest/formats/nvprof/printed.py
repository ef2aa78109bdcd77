"""Quantities as nvprof prints them, `25.408us` or `1.1152KB`, exactly in ns and bytes."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from xsp_ingest.files.digits import natural
from xsp_ingest.files.text import open_text
from xsp_ingest.link.demangle import demangle
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_ingest.staging.rows import Rows
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

__all__ = [
    "Header",
    "LineRows",
    "Printed",
    "add_summary",
    "add_trace",
    "byte_count",
    "header_of",
    "read_printed",
    "rows",
    "time_ns",
]

_QUANTITY = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?)\s?([a-zA-Z]{0,3})\Z", re.ASCII)
_TIMES: Mapping[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BYTES: Mapping[str, int] = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def time_ns(text: str) -> int | None:
    """A time; None where the text is none."""
    return _scale(text, _TIMES)


def byte_count(text: str) -> int | None:
    """A size, whose prefixes are powers of 1024; None where the text is none."""
    return _scale(text, _BYTES)


def _scale(text: str, units: Mapping[str, int]) -> int | None:
    match = _QUANTITY.match(text)
    if match is None or match[2] not in units:
        return None
    value = round(Decimal(match[1]) * units[match[2]])
    return value if -LATEST_NS < value < LATEST_NS else None  # sizes, too, are added up


# The tables that nvprof prints among a program's output: their headers and rows, as CSV and as text.

_LOG = re.compile(r"==(\d{1,9})== ")
_GAP = re.compile(r"\s{2,}")
_TRACE, _SUMMARY = {"Start", "Duration", "Name"}, {"Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"}
_GROUP = re.compile(r"\s*([A-Z][\w ]*):\s+(?=[\d.]+%\s)")
_PERCENT = re.compile(r"\s*[\d.]+%\s")
_START = re.compile(r"\s*(?:[\d.]+(?:[num]?s)|-)\s")
_PARTIAL = re.compile(r"[ \t]+|\s*[\d.]+(?:%|[num]?s)?[ \t]*")  # how a row begins, and no line end
_TIME_UNITS = ("s", "ms", "us", "ns")
_MAX_CHARACTERS = 1 << 20


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
    if len(line) > _MAX_CHARACTERS or "Name" not in line:
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


# What one row of a printed table says: an activity of the device, or a call.

_SOURCE = "nvprof"
_NONE = ("", "-")
_CORRELATION = re.compile(r" \[(\d{1,18})\]\Z")
_CALL = re.compile(r"(\w+) \(.*?(?: \[(\d{1,18})\])?\)\Z", re.DOTALL)
_DEVICE = re.compile(r"(.*) \((\d{1,9})\)\Z")
_SIZES = re.compile(r"\((\d{1,18}) (\d{1,18}) (\d{1,18})\)\Z")
_COPY = re.compile(r"\[(?:CUDA|Unified Memory) [Mm]emcpy (\w+)\]\Z")
_DIRECTIONS = {
    f"{source}to{target}": f"{sources}-to-{targets}"
    for source, sources in (("H", "Host"), ("D", "Device"), ("A", "Array"))
    for target, targets in (("H", "Host"), ("D", "Device"), ("A", "Array"))
} | {"PtoP": "Peer-to-Peer"}
_LAUNCH: Mapping[str, tuple[str, ...]] = {  # column of `kernels`: headings in CSV and in text
    "registers_per_thread": ("Registers Per Thread", "Regs"),
    "static_shared_bytes": ("Static SMem", "SSMem"),
    "dynamic_shared_bytes": ("Dynamic SMem", "DSMem"),
}


@dataclass(slots=True)
class LineRows:
    """The rows so far, where the next row without a start would stand, and what was left out."""

    rows: Rows = field(default_factory=Rows)
    count: int = 0
    ends_ns: dict[tuple[int | None, bool], int] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)
    untimed: int = 0
    negative: int = 0
    skipped: int = 0

    @property
    def has_rows(self) -> bool:
        """Whether any row could be used."""
        return self.count > 0

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """Every staging table."""
        return self.rows.frames()

    def add(self, **span: object) -> int:
        """Adds a span; gives its row."""
        self.rows.add("spans", row=self.count, **span)
        self.count += 1
        return self.count - 1


def add_trace(row: Mapping[str, str], process: int | None, work: LineRows) -> None:
    """Adds a row of a trace: device work where it names a device, else a call."""
    kind = _kind(row["Name"])
    start, duration = time_ns(row["Start"]), time_ns(row["Duration"])
    if kind is None:
        work.skipped += 1
        return
    if start is None or duration is None:
        work.untimed += 1
        return
    work.negative += duration < 0
    times = {"start_ns": start, "duration_ns": max(duration, 0)}
    if row.get("Device", "") in _NONE:
        _add_call(row, process, times, work)
    else:
        _add_device_work(row, process, times, kind, work)


def _kind(name: str) -> Kind | None:
    """What an activity is by its name; None for page faults, ranges and marks."""
    if _COPY.match(name):
        return Kind.MEMCPY
    if name.startswith("[CUDA memset"):
        return Kind.MEMSET
    return None if name.startswith("[") else Kind.KERNEL


def _add_call(row: Mapping[str, str], process: int | None, times: Mapping[str, int], work: LineRows) -> None:
    name, correlation = row["Name"], natural(row.get("Correlation_ID", ""))
    if match := _CALL.match(name):  # the kernel that a launch is of stands behind its name
        name = match[1]
        correlation = correlation if correlation is not None or match[2] is None else int(match[2])
    work.add(
        level=str(Level.RUNTIME),
        kind=str(Kind.CALL),
        name=name or "[unnamed call]",
        process_id=process,
        correlation_id=correlation or None,
        **times,
    )


def _add_device_work(
    row: Mapping[str, str], process: int | None, times: Mapping[str, int], kind: Kind, work: LineRows
) -> None:
    name, correlation = row["Name"], natural(row.get("Correlation_ID", ""))
    if match := _CORRELATION.search(name):
        name = name[: match.start()]
        correlation = int(match[1]) if correlation is None else correlation
    device = _DEVICE.match(row["Device"])
    device_id = int(device[2]) if device else None
    if device and device_id is not None and device_id not in work.devices:
        work.devices.add(device_id)
        work.rows.add("devices", device_id=device_id, name=device[1])
    row_id = work.add(
        level=str(Level.KERNEL),
        kind=str(kind),
        name=demangle(name) or "[unnamed kernel]",
        process_id=process,
        device_id=device_id,
        context_id=natural(row.get("Context", "")),
        stream_id=natural(row.get("Stream", "")),
        correlation_id=correlation or None,
        **times,
    )
    if kind is Kind.KERNEL:
        work.rows.add("kernels", row=row_id, **_launch(row))
    else:
        work.rows.add("copies", row=row_id, **_copy_columns(row, kind))


def _launch(row: Mapping[str, str]) -> dict[str, int | None]:
    """Grid, block, registers and shared memory."""
    columns: dict[str, int | None] = {}
    for what, heading in (("grid", "Grid"), ("block", "Block")):
        sizes = _SIZES.match(row.get(f"{heading} Size", ""))
        for n, axis in enumerate("xyz"):
            columns[f"{what}_{axis}"] = (
                int(sizes[n + 1]) if sizes else natural(row.get(f"{heading} {axis.upper()}", ""))
            )
    for column, headings in _LAUNCH.items():
        text = next((row[heading] for heading in headings if heading in row), "")
        columns[column] = natural(text) if column == "registers_per_thread" else byte_count(text)
    static, dynamic = columns["static_shared_bytes"], columns["dynamic_shared_bytes"]
    columns["shared_bytes"] = None if static is None or dynamic is None else static + dynamic
    return columns


def _copy_columns(row: Mapping[str, str], kind: Kind) -> dict[str, object]:
    """Size and direction; newer versions say what kind of memory both ends are."""
    copy = _COPY.match(row["Name"])
    direction = _DIRECTIONS.get(copy[1], "Unknown") if copy else None
    unified = "Unified " if row["Name"].startswith("[Unified") and direction != "Unknown" else ""
    ends = {"source_kind": row.get("SrcMemType", ""), "destination_kind": row.get("DstMemType", "")}
    return {
        "bytes": byte_count(row.get("Size", "")),
        "copy_kind": f"{unified}{direction}" if kind is Kind.MEMCPY else None,
        **{column: None if text in _NONE else text for column, text in ends.items()},
    }


def add_summary(row: Mapping[str, str], process: int | None, work: LineRows) -> None:
    """Adds a row of a summary: all calls of a name, as long as they took together, behind the row before."""
    is_call = row.get("Type", "") == "API calls"
    kind = _kind(row["Name"])
    if kind is None or row.get("Type", "") not in {"", "GPU activities", "API calls"}:
        work.skipped += 1
        return
    total = time_ns(row["Time"])
    if total is None:
        work.untimed += 1
        return
    start = work.ends_ns.get((process, is_call), 0)
    if start + max(total, 0) > LATEST_NS:
        work.untimed += 1
        return
    work.negative += total < 0
    work.ends_ns[process, is_call] = start + max(total, 0)
    row_id = work.add(
        level=str(Level.RUNTIME if is_call else Level.KERNEL),
        kind=str(Kind.CALL if is_call else kind),
        name=(row["Name"] if is_call else demangle(row["Name"])) or "[unnamed]",
        start_ns=start,
        duration_ns=max(total, 0),
        process_id=process,
        thread_id=0 if is_call else None,
    )
    if not is_call and kind is Kind.KERNEL:
        work.rows.add("kernels", row=row_id)
    elif not is_call:
        work.rows.add("copies", row=row_id, **_copy_columns(row, kind))
    _add_statistics(row, row_id, work)


def _add_statistics(row: Mapping[str, str], row_id: int, work: LineRows) -> None:
    """Over how many calls the row is, and the shortest and the longest of them."""
    calls = natural(row["Calls"])
    values = {
        "invocations": (calls, "1"),
        "min_duration_ns": (time_ns(row["Min"]), "ns"),
        "max_duration_ns": (time_ns(row["Max"]), "ns"),
    }
    for metric, (value, unit) in values.items():
        if value is not None:
            work.rows.add("metrics", row=row_id, metric=metric, value=float(value), unit=unit, source=_SOURCE)


# Reads the traces and summaries that nvprof prints.

_AGAIN = "Copy or print it again: nvprof --print-gpu-trace --csv --log-file FILE PROGRAM"


def read_printed(path: Path) -> RawTrace:
    """The file's rows; XspError where it is cut off, or its tables hold no row.

    Where the file holds traces, the summaries in it are left out: they tell of the same work.
    """
    traced, summed, seen = LineRows(), LineRows(), Printed()
    rounded = 0
    try:
        with open_text(path) as file:
            pieces = iter(partial(file.readline, _MAX_CHARACTERS), "")  # no line, however long, is held whole
            for header, row, process in rows(pieces, seen):
                if header.is_trace:
                    rounded += not header.is_csv
                    add_trace(row, process, traced)
                else:
                    add_summary(row, process, summed)
    except (EOFError, OSError) as error:
        raise XspError("the file is cut off or damaged", path=path, advice=_AGAIN) from error
    if seen.is_cut_off:
        raise XspError("the file is cut off: its last row is not complete", path=path, advice=_AGAIN)
    work = traced if traced.has_rows else summed
    if not work.has_rows:
        raise XspError("the tables of the file hold no row that can be used", path=path, advice=_AGAIN)
    findings = (*_findings(work, seen, rounded), *_summary_notes(traced, summed))
    return RawTrace(work.frames(), RunFacts(profiler="nvprof"), tuple(f for f in findings if f.count))


def _findings(work: LineRows, seen: Printed, rounded: int) -> list[Finding]:
    return [
        Finding(LedgerKind.BAD_LINE, "rows of the tables with too few or too many values", seen.bad_rows),
        Finding(LedgerKind.MISSING_TIME, "rows without a start or a duration were left out", work.untimed),
        Finding(LedgerKind.NEGATIVE_DURATION, "rows with a negative duration were taken as 0 ns long", work.negative),
        Finding(
            LedgerKind.RECORDS_NOT_READ,
            "rows of page faults, ranges and marks, which are not read from printed tables",
            work.skipped,
            advice="A database (`nvprof -o FILE`) holds ranges as well",
        ),
        Finding(LedgerKind.ROUNDED_TIMES, count=rounded),
    ]


def _summary_notes(traced: LineRows, summed: LineRows) -> list[Finding]:
    left_out = summed.count if traced.has_rows else 0
    shown = 0 if traced.has_rows else summed.count
    return [
        Finding(
            LedgerKind.SUMMARY_LEFT_OUT,
            "rows of summaries, which tell of the work in the traces",
            left_out,
            Severity.INFO,
        ),
        Finding(
            LedgerKind.NO_TIMESTAMPS,
            "rows of a summary have no starts: each stands for all calls of a name, end to end in the table's order",
            shown,
            advice="Print a trace with --print-gpu-trace, or record with `nvprof -o FILE`",
        ),
    ]
