"""Reads Nsight Compute's binary reports by means of the user's own Nsight Compute."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from xsp_ingest.formats.ncu.csv import read_text
from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["NCU_REPORT"]

_MAGIC = b"NVR\0"


class NcuReport(Ingester):
    """The ingester of `.ncu-rep` files."""

    name: str = "ncu_report"
    title: str = "Nsight Compute report (.ncu-rep), read by the user's own ncu or module ncu_report"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file starts as a report does."""
        return Match.exact_if(probe.head.startswith(_MAGIC))

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (no option concerns it)
        """The report's kernels and counters; XspError where nothing here can read it."""
        from xsp_ingest.formats.ncu.report.tool import raw_page

        return read_text(io.StringIO(raw_page(path)), path, "Nsight Compute")


NCU_REPORT = NcuReport()
