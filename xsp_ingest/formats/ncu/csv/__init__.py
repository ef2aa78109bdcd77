"""Reads the CSV that Nsight Compute prints or exports."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe, decode_head, open_text
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from xsp_ingest.formats.ncu.csv.pages import Log
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NCU_CSV", "PROFILER", "read_text"]

PROFILER = "Nsight Compute"
"""The tool that wrote the files."""
_LOG = "==PROF=="
_AGAIN = "Copy or export it again"
_DENIED = "ERR_NVGPUCTRPERM"


class NcuCsv(Ingester):
    """The ingester of `ncu --csv` output."""

    name: str = "ncu_csv"
    title: str = (
        "Nsight Compute CSV: `ncu --csv`, details, raw or summary page, with or without the log around it;"
        " the details page as text; seen: 2021.2 to 2025.3"
    )

    def sniff(self, probe: Probe) -> Match:
        """Whether a header of kernels and counters stands in the head, or the log of a profiler that failed."""
        if probe.text.startswith((b"SQLite", b"{", b"[")):
            return Match.NONE
        from xsp_ingest.formats.ncu.csv.pages import is_header, is_printed

        lines = decode_head(probe.text).split("\n")
        is_page = any(is_header(line) or is_printed(line) for line in lines)
        return Match.exact_if(is_page or lines[0].startswith((_LOG, "==ERROR==")))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's kernels and counters; XspError where it holds none, or its numbers are ambiguous."""
        from xsp_ingest.formats.ncu.csv.pages import as_csv, is_printed

        is_text = any(map(is_printed, decode_head(Probe(path).text).split("\n")))
        with open_text(path) as file:
            return read_text(as_csv(file) if is_text else file, path, options)


def read_text(file: Iterable[str], path: Path, options: Options) -> RawTrace:
    """The kernels of the text of a page; `path` is named in errors."""
    from xsp_ingest.formats.ncu.csv.pages import Log, collect, records
    from xsp_ingest.formats.ncu.csv.shape import shape

    log = Log()
    try:
        collected = collect(records(iter(file), log))
    except (EOFError, OSError, zlib.error) as error:
        raise XspError("the file is cut off or damaged", path=path, advice=_AGAIN) from error
    if log.is_cut_off or collected.is_cut_off:
        raise XspError("the file is cut off: its last row is not complete", path=path, advice=_AGAIN)
    if not collected.kernels["name"]:
        raise _nothing(log, path)
    raw = shape(collected, path, PROFILER, options)
    return raw if not log.unclosed else _with_broken(raw, log.unclosed)


def _nothing(log: Log, path: Path) -> XspError:
    if any(_DENIED in line for line in log.complaints):
        return XspError(
            "Nsight Compute was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM)",
            path=path,
            advice="Run it as root, or let the administrator set NVreg_RestrictProfilingToAdminUsers=0",
        )
    return XspError(
        "the file holds no kernel's counters", path=path, advice="Write it with `ncu --csv --page raw --log-file FILE`"
    )


def _with_broken(raw: RawTrace, count: int) -> RawTrace:
    finding = Finding(LedgerKind.CUT_OFF_ROWS, "rows that a quote was left open in were left out", count)
    return replace(raw, findings=(*raw.findings, finding))


NCU_CSV = NcuCsv()
