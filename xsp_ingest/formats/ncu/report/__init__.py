"""Recognises binary reports of Nsight Compute and has them read by NVIDIA's package or program."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from xsp_ingest.formats.ncu.csv import PROFILER, read_text
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
    title: str = (
        "Nsight Compute report (.ncu-rep), read by NVIDIA's package ncu-report or the user's own ncu;"
        " seen: 2021.2 and 2022.4"
    )

    def sniff(self, probe: Probe) -> Match:
        """Whether the file starts as a report does."""
        return Match.exact_if(probe.head.startswith(_MAGIC))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The report's kernels, ranges and counters; XspError where nothing here can read it."""
        from xsp_ingest.formats.ncu.report.tool import raw_page, read_by_module, uses_module

        if not uses_module():
            return read_text(io.StringIO(raw_page(path)), path, options)
        from xsp_ingest.formats.ncu.csv.shape import shape

        return shape(read_by_module(path), path, PROFILER, options)


NCU_REPORT = NcuReport()
