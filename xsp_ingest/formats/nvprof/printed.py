"""Reads the traces and summaries that nvprof prints."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from xsp_ingest.files.content import open_text
from xsp_ingest.files.values import natural
from xsp_ingest.formats.nvprof.tables import MAX_CHARACTERS, Printed, rows
from xsp_ingest.staging.cuda_names import demangle
from xsp_ingest.staging.intervals import Rows
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, Kind, LedgerKind, Level, Severity, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import polars as pl

__all__ = ["read_printed"]

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


_AGAIN = "Copy or print it again: nvprof --print-gpu-trace --csv --log-file FILE PROGRAM"


def read_printed(path: Path) -> RawTrace:
    """The file's rows; XspError where it is cut off, or its tables hold no row.

    Where the file holds traces, the summaries in it are left out: they tell of the same work.
    """
    traced, summed, seen = LineRows(), LineRows(), Printed()
    rounded = 0
    try:
        with open_text(path) as file:
            pieces = iter(partial(file.readline, MAX_CHARACTERS), "")  # no line, however long, is held whole
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
