"""nvprof: its databases, the traces and summaries that it prints, and the sessions of the Visual Profiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.files.content import decode_head
from xsp_ingest.files.sqlite import MAGIC, table_names
from xsp_ingest.formats.nvprof.tables import PREFIX, STRINGS, header_of, is_nvprof
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NVPROF"]

_SESSION = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<session\b[^>]*>\s*(?:<!--.*?-->\s*)*<", re.DOTALL)
_SESSION_PARTS = re.compile(rb"<(?:timelineoptions|executable|timelinestate|expertsystem)\b")
_LOG = re.compile(r"^==\d+== ", re.MULTILINE)
_JSON = (b"{", b"[", b"<")


class Nvprof(Ingester):
    """The ingester of nvprof's databases and printed tables of times."""

    name: str = "nvprof"
    title: str = (
        "nvprof: SQLite (.nvprof, .nvvp), --print-gpu-trace and --print-api-trace (CSV and text), summaries; "
        "seen: CUDA 6.5 to 11"
    )

    def sniff(self, probe: Probe) -> Match:
        """A database with CUPTI's tables and a StringTable, a printed table of times, or an XML session."""
        if probe.head.startswith(MAGIC):
            try:
                return Match.exact_if(is_nvprof(table_names(probe.path)))
            except XspError:
                # Damaged: nvprof's if the names of its tables stand in what can be read.
                return Match.exact_if(STRINGS.encode() in probe.head and PREFIX.encode() in probe.head)
        if _is_session(probe.text):
            return Match.EXACT
        if probe.text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(_JSON):
            return Match.NONE
        text = decode_head(probe.text)
        by_nvprof = bool(_LOG.search(text))
        return Match.exact_if(any(_is_nvprofs(line, by_nvprof=by_nvprof) for line in text.split("\n")))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is cut off or damaged, or is a session, which holds no trace."""
        from xsp_ingest.formats.nvprof.database import read_database
        from xsp_ingest.formats.nvprof.printed import read_printed

        with path.open("rb") as file:
            head = file.read(1 << 16)
        if head.startswith(MAGIC):
            return read_database(path, options)
        if _is_session(head):
            raise XspError(
                "a session of the NVIDIA Visual Profiler that names a program and its views but holds no trace",
                path=path,
                advice="Record one with `nvprof -o FILE.nvprof PROGRAM` and give that file",
            )
        return read_printed(path)


def _is_nvprofs(line: str, *, by_nvprof: bool) -> bool:
    """Whether the line is a header that only nvprof prints, or any that it prints in a log of its."""
    header = header_of(line)
    return header is not None and (by_nvprof or not header.is_trace or "Device" in header.columns)


def _is_session(head: bytes) -> bool:
    return bool(_SESSION.match(head) and _SESSION_PARTS.search(head))


NVPROF = Nvprof()
