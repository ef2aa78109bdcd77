"""CUPTI dumps: activity records, one a row, as JSON lines or Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.cupti_dump.header import IS_DUMP, PARQUET_MAGIC, facts_of
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.cupti import Records

__all__ = ["CUPTI_DUMP"]


class _CuptiDump(Ingester):
    name: str = "cupti_dump"
    title: str = "CUPTI activity records as JSON lines (plain or gzip) or Parquet; our own format, version 1"

    def sniff(self, probe: Probe) -> Match:
        """A first line, or a Parquet file's metadata, that names the format."""
        if probe.head.startswith(PARQUET_MAGIC):
            from xsp_ingest.formats.cupti_dump.reader import is_parquet_dump

            return Match.exact_if(is_parquet_dump(probe.path))
        return Match.exact_if(IS_DUMP.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is cut off, of a later version, or holds no records."""
        from xsp_ingest.formats.cupti_dump.reader import operators_with_threads, read_dump, with_issuers
        from xsp_ingest.staging import cupti
        from xsp_ingest.staging.cupti import devices

        header, records = read_dump(path)
        operators, doubts = operators_with_threads(records)
        parts = [
            cupti.activities(records),
            cupti.waits(records),
            cupti.calls(records),
            cupti.operators(records, operators),
        ]
        marked, marker_findings = cupti.markers(records, options)
        spans = [with_issuers(records, parts[0][0]), *(part for part, _ in parts[1:]), marked["spans"]]
        tables = (
            {name: frame_of(name) for name in RAW_TABLES}
            | marked
            | {
                "spans": pl.concat(spans),
                "kernels": cupti.kernels(records),
                "copies": cupti.copies(records),
                "operators": cupti.operator_facts(operators),
                "devices": devices(records),
            }
        )
        if tables["spans"].is_empty():
            raise XspError("the CUPTI dump holds no record with a start", path=path)
        findings = [
            *records.findings,
            *doubts,
            *(f for _, part in parts for f in part),
            *marker_findings,
            _overhead(records),
            *(Finding(LedgerKind.PROFILER_DIAGNOSTIC, f"CUPTI refused {what}", 1) for what in header.refused),
        ]
        return RawTrace(tables, facts_of(header), tuple(f for f in findings if f.count))


def _overhead(records: Records) -> Finding:
    """CUPTI's own work, which took host time inside the spans around it."""
    rows, _ = with_times(records.of("OVERHEAD"), "overhead", device=True, zeros_unknown=True)
    total = rows["duration_ns"].cast(pl.Int128).sum()
    detail = f"stretches in which CUPTI itself worked, {total} ns in sum; host times around them are longer for it"
    return Finding(LedgerKind.PROFILER_OVERHEAD, detail, rows.height)


CUPTI_DUMP = _CuptiDump()
