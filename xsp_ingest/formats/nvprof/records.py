"""Turns a database's records into the staging tables, on the path of CUPTI dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.cupti_dump import host, work
from xsp_ingest.formats.cupti_dump.devices import devices
from xsp_ingest.formats.nvprof.database import read_records
from xsp_ingest.staging.intervals import timed
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Severity, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.formats.cupti_dump.records import Dump
    from xsp_ingest.ingester import Options

__all__ = ["read_database"]

_SINCE_1970_NS = 10**18


def read_database(path: Path, options: Options) -> RawTrace:
    """The database's rows; XspError where it is damaged, or holds no record with a start."""
    dump = read_records(path)
    parts = [work.work(dump), work.waits(dump), host.calls(dump)]
    marked, ranges, marker_findings = host.markers(dump, options)
    spans = pl.concat([*(spans for spans, _ in parts), marked])
    if spans.is_empty():
        raise XspError(
            "the nvprof database holds no activity with a start",
            path=path,
            advice="Profile again; a program should call cudaDeviceReset() before it ends",
        )
    tables = {name: frame_of(name) for name in RAW_TABLES} | {
        "spans": spans,
        "kernels": work.kernels(dump),
        "copies": work.copies(dump),
        "ranges": ranges,
        "devices": devices(dump),
    }
    findings = (*dump.findings, *(f for _, part in parts for f in part), *marker_findings, _overhead(dump))
    first = spans["start_ns"].min()
    since_1970 = isinstance(first, int) and first > _SINCE_1970_NS
    facts = RunFacts(profiler="nvprof", epoch_ns=0 if since_1970 else None)
    return RawTrace(tables, facts, tuple(finding for finding in findings if finding.count))


def _overhead(dump: Dump) -> Finding:
    rows, _ = timed(dump.of("OVERHEAD"), "overhead", device=True, zeros_unknown=True)
    detail = "stretches in which the profiler itself worked; host times around them are longer for it"
    return Finding("profiler_overhead", detail, rows.height, Severity.INFO)
