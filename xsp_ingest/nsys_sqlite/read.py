"""From Nsight's tables to the rows of a trace, the same way for every kind of export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.nsys_sqlite.activities import activities
from xsp_ingest.nsys_sqlite.counters import counters
from xsp_ingest.nsys_sqlite.devices import devices
from xsp_ingest.nsys_sqlite.facts import complaints, run_facts, session_ns
from xsp_ingest.nsys_sqlite.host import host_calls
from xsp_ingest.nsys_sqlite.messages import messages
from xsp_ingest.nsys_sqlite.nvtx import nvtx_ranges
from xsp_ingest.nsys_sqlite.os_runtime import os_runtime
from xsp_ingest.nsys_sqlite.overhead import capture
from xsp_ingest.nsys_sqlite.rows import join, without_absurd
from xsp_ingest.nsys_sqlite.sensors import sensors
from xsp_ingest.raw import RawTrace
from xsp_model import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.ingester import Options
    from xsp_ingest.nsys_sqlite.tables import Tables

__all__ = ["read_tables"]


def read_tables(export: Tables, options: Options) -> RawTrace:
    """The export's rows."""
    parts = (
        *activities(export),
        *host_calls(export),
        *messages(export),
        os_runtime(export, options),
        nvtx_ranges(export, options),
        devices(export),
        *counters(export),
        sensors(export),
    )
    tables, findings = join((*parts, *capture(export, parts)))
    tables["spans"], absurd = without_absurd(tables["spans"], session_ns(export))
    findings = (*findings, *absurd, *complaints(export), *_left_out(export))
    return RawTrace(tables, run_facts(export), findings)


def _left_out(export: Tables) -> Iterator[Finding]:
    if export.unreadable_texts:
        yield Finding(
            "not_utf8",
            "Texts that are not UTF-8; their foreign bytes show as U+FFFD",
            export.unreadable_texts,
            Severity.INFO,
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in export.tables:
        yield Finding(
            "no_kernel_table",
            "The file has no table of kernels: no kernel was recorded, or CUDA was not traced",
            advice="Capture with `nsys profile --trace=cuda,nvtx`",
        )
