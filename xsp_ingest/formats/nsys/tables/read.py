"""From Nsight's tables to the rows of a trace, the same way for every kind of export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.formats.nsys.tables.activities import activities, devices
from xsp_ingest.formats.nsys.tables.capture import capture, complaints, run_facts, session_ns
from xsp_ingest.formats.nsys.tables.counters import counters
from xsp_ingest.formats.nsys.tables.host import directives, host_calls, messages, os_runtime
from xsp_ingest.formats.nsys.tables.interface import Noted, tables_not_read
from xsp_ingest.formats.nsys.tables.nvtx import nvtx_ranges
from xsp_ingest.formats.nsys.tables.rows import Joined
from xsp_ingest.formats.nsys.tables.sensors import sensors
from xsp_ingest.staging.raw import RawTrace
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables
    from xsp_ingest.formats.nsys.tables.rows import ExportRows
    from xsp_ingest.ingester import Options

__all__ = ["read_tables"]


def read_tables(export: Tables, options: Options) -> RawTrace:
    """The export's rows."""
    export = Noted(export)
    joined = Joined(session_ns(export))
    for part in _parts(export, options):
        joined.add(part)
        del part  # while the next one is read
    for part in capture(export, joined.first_ns, joined.used):
        joined.add(part)
    findings = (*joined.findings(), *complaints(export), *_unreadable_parts(export))
    facts = run_facts(export)
    return RawTrace(joined.tables(), facts, (*findings, *tables_not_read(export)))


def _parts(export: Tables, options: Options) -> Iterator[ExportRows]:
    yield from activities(export)
    yield from host_calls(export)
    yield from messages(export)
    yield from directives(export)
    yield os_runtime(export, options)
    yield nvtx_ranges(export, options)
    yield devices(export)
    yield from counters(export)
    yield sensors(export)


def _unreadable_parts(export: Tables) -> Iterator[Finding]:
    if export.unreadable_texts:
        yield Finding(
            LedgerKind.NOT_UTF8, "Texts that are not UTF-8; their foreign bytes show as U+FFFD", export.unreadable_texts
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in export.tables:
        yield Finding(LedgerKind.NO_KERNEL_TABLE)
