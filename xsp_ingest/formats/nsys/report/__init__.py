"""Reads Nsight Systems' own report files through the user's own nsys."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_ingest.formats.nsys.report import tool
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NSYS_REPORT"]

_REPORT = b"NVIDIA Tegra Profiler Report"
_STREAM = b"NVIDIA Nsight Systems Stream"
_HEAD_BYTES = 64
_VERSION = re.compile(rb"Report (\d+)@(\d+)@(\d+)@")


class NsysReport(Ingester):
    """The ingester of Nsight Systems' report files."""

    name: str = "nsys_report"
    exported_with: str | None = ".sqlite"
    title: str = "Nsight Systems report (.nsys-rep, .qdrep) through your own nsys (2023.4 seen)"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file begins as a report, or as the stream that one is made from."""
        return Match.exact_if(probe.head.startswith(_REPORT) or _is_stream(probe.head))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The report's rows; XspError where there is no nsys, or none that can export the report."""
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if _is_stream(head):
            raise XspError(
                "a stream that Nsight Systems has not made into a report yet",
                path=path,
                advice=f"Run `QdstrmImporter -i {path.name}`, which lies in Nsight Systems' host folder, and then "
                "give the .nsys-rep file to xsp",
            )
        nsys = tool.find(options.extra)
        if nsys is None:
            raise XspError(
                "a Nsight Systems report, which only nsys can open, and none is on PATH",
                path=path,
                advice=tool.command_elsewhere(path),
            )
        _check_age(nsys, head, path)
        return _read_export(nsys, path, options)


def _is_stream(head: bytes) -> bool:
    return _STREAM in head[:_HEAD_BYTES]


def _check_age(nsys: str, head: bytes, path: Path) -> None:
    """A report is read by the version that wrote it and by later ones; XspError where nsys is older."""
    written = _VERSION.search(head)
    ours = tool.version_of(nsys)
    if written is None or ours is None:
        return
    theirs = tuple(int(part) for part in written.groups())
    if theirs > ours:
        raise XspError(
            f"the report is of Nsight Systems {'.'.join(map(str, theirs))}, and nsys here is {'.'.join(map(str, ours))}"
            ", which cannot open it",
            path=path,
            advice=tool.command_elsewhere(path),
        )


def _read_export(nsys: str, path: Path, options: Options) -> RawTrace:
    with tempfile.TemporaryDirectory(prefix="xsp-nsys-") as name:
        database = tool.export(nsys, path, Path(name), options.extra)
        raw = NSYS_SQLITE.read(database, options)
    # What is read is the export; where it came from is the report.
    return replace(raw, facts=replace(raw.facts, source_bytes=path.stat().st_size))


NSYS_REPORT = NsysReport()
