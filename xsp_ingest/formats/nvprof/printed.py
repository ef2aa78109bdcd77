"""Reads the traces and summaries that nvprof prints."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from xsp_ingest.files.content import open_text
from xsp_ingest.formats.nvprof.lines import LineRows, add_summary, add_trace
from xsp_ingest.formats.nvprof.table import Printed, rows
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, LedgerKind, Severity, XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_printed"]

_MAX_CHARACTERS = 1 << 20
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
