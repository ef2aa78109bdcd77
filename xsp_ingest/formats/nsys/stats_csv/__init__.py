"""Reads the traces that `nsys stats` prints as CSV, and those that `nsys recipe` keeps as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from xsp_ingest.formats.nsys.stats_csv.sections import PARQUET, Report, Section, has_headings, report_of, sections
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RawTrace, RunFacts
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.nsys.tables.interface import ExportRows
    from xsp_ingest.ingester import Options

__all__ = ["NSYS_STATS_CSV"]

_ADVICE = "Give the .nsys-rep file or its SQLite export; or a report of single events: cuda_gpu_trace, cuda_api_trace"


class NsysStatsCsv(Ingester):
    """The ingester of `nsys stats --format csv` and of the Parquet files of `nsys recipe`."""

    name: str = "nsys_stats_csv"
    title: str = "Nsight Systems stats CSV and recipe Parquet: reports of single events (nsys 2023.4 seen)"

    def sniff(self, probe: Probe) -> Match:
        """Whether the file has the headings of a report, of single events or of sums."""
        if probe.head.startswith(PARQUET):
            return Match.exact_if(_is_recipe(probe.path))
        return Match.exact_if(b"\0" not in probe.text and has_headings(probe.text))

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """Files that nsys wrote of one report are one run: `NAME_cuda_gpu_trace.csv`, `NAME_cuda_api_trace.csv`."""
        groups: dict[tuple[Path, str], list[Path]] = {}
        for path in paths:
            stem = path.stem
            for report in Report:
                stem = stem.removesuffix(f"_{report}")
            groups.setdefault((path.parent, stem), []).append(path)
        return list(groups.values())

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The run of these files; XspError where they hold sums only, or one cannot be used."""
        return [self._read_together(paths, options)]

    def _read_together(self, paths: Sequence[Path], options: Options) -> RawTrace:
        from xsp_ingest.formats.nsys.tables.interface import join

        by_report: dict[Report, Section] = {}
        for path in paths:
            for section in sections(path):
                by_report.setdefault(section.report, section)
        if not set(by_report) - {Report.SUM}:
            raise XspError(
                "a table of sums of Nsight Systems, out of which no trace can be made", path=paths[0], advice=_ADVICE
            )
        tables, findings = join(_parts(by_report, options))
        facts = RunFacts(profiler="Nsight Systems", source_bytes=sum(path.stat().st_size for path in paths))
        return RawTrace(tables, facts, (*findings, *_doubts(by_report)))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The run of a file by itself."""
        return self._read_together([path], options)


def _is_recipe(path: Path) -> bool:
    try:
        return report_of(pq.read_schema(path).names) is not None
    except (pa.ArrowException, OSError):
        return False


def _parts(sections: Mapping[Report, Section], options: Options) -> Iterator[ExportRows]:
    from xsp_ingest.formats.nsys.stats_csv.rows import api_calls, executions, gpu_work, numbered_calls, range_rows

    has_traces = Report.GPU in sections or Report.API in sections
    if Report.API in sections:
        yield numbered_calls(api_calls(sections[Report.API]), Report.API)
    if Report.GPU in sections:
        calls = api_calls(sections[Report.API]) if Report.API in sections else api_calls(Section(Report.API, {}))
        yield gpu_work(sections[Report.GPU], calls)
    if Report.EXEC in sections and not has_traces:
        yield from executions(sections[Report.EXEC])
    if Report.RANGES in sections:
        yield range_rows(sections[Report.RANGES], options, start="Start", duration="Duration")
    elif Report.PROJECTED in sections:
        yield range_rows(sections[Report.PROJECTED], options, start="Orig Start", duration="Orig Duration")


def _doubts(sections: Mapping[Report, Section]) -> Iterator[Finding]:
    if Report.SUM in sections:
        yield Finding(LedgerKind.SUMMARY_LEFT_OUT, "Tables of sums beside the reports of single events were not read")
    if Report.EXEC in sections and (Report.GPU in sections or Report.API in sections):
        yield Finding(LedgerKind.RESTATED, count=sections[Report.EXEC].height)
    if Report.GPU in sections and Report.API not in sections:
        yield Finding(LedgerKind.LAUNCHES_NOT_GIVEN, count=sections[Report.GPU].height)


NSYS_STATS_CSV = NsysStatsCsv()
