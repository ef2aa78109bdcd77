"""Turns a database's records into the staging tables, on the path of CUPTI dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nvprof.database import read_records
from xsp_ingest.staging import cupti
from xsp_ingest.staging.cupti import calls, devices, markers
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.cupti_fields import Records

__all__ = ["read_database"]

_SINCE_1970_NS = 10**18


def read_database(path: Path, options: Options) -> RawTrace:
    """The database's rows; XspError where it is damaged, or holds no record with a start."""
    records = read_records(path)
    parts = [cupti.activities(records), cupti.waits(records), calls(records)]
    marked, marker_findings = markers(records, options)
    spans = pl.concat([*(spans for spans, _ in parts), marked["spans"]])
    if spans.is_empty():
        raise XspError(
            "the nvprof database holds no activity with a start",
            path=path,
            advice="Profile again; a program should call cudaDeviceReset() before it ends",
        )
    tables = (
        {name: frame_of(name) for name in RAW_TABLES}
        | marked
        | {
            "spans": spans,
            "kernels": cupti.kernels(records),
            "copies": cupti.copies(records),
            "devices": devices(records),
        }
    )
    findings = (*records.findings, *(f for _, part in parts for f in part), *marker_findings, _overhead(records))
    first = spans["start_ns"].min()
    since_1970 = isinstance(first, int) and first > _SINCE_1970_NS
    facts = RunFacts(profiler="nvprof", epoch_ns=0 if since_1970 else None)
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _overhead(records: Records) -> Finding:
    rows, _ = with_times(records.of("OVERHEAD"), "overhead", device=True, zeros_unknown=True)
    detail = "stretches in which the profiler itself worked; host times around them are longer for it"
    return Finding(LedgerKind.PROFILER_OVERHEAD, detail, rows.height)
