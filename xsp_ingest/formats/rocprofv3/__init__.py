"""rocprofv3 (ROCprofiler-SDK): its JSON and CSV outputs; and what AMD's older tools wrote."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.formats.rocprofv3.outputs import Output, OutputTable, output_of, table_of
from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.formats.rocprofv3.records import Records
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["ROCPROFV3"]

_PREFIX = re.compile(
    r"(.*?)_?(?:(?:(?:kernel|memory_copy|(?:hip|hsa|marker|rccl)_api)_trace|agent_info|counter_collection)\.csv"
    r"|results\.(?:json|db|csv|pftrace))(?:\.gz)?"
)


class _RocprofV3(Ingester):
    name: str = "rocprofv3"
    title: str = (
        "rocprofv3 (ROCprofiler-SDK): JSON, rocpd database, CSV traces and counters, Perfetto trace;"
        " rocmProfileData (RPD) as database or JSON, JSON, database and CSV of the first rocprof;"
        " seen: JSON of ROCm 7, CSV, RPD of 2024"
    )

    def sniff(self, probe: Probe) -> Match:
        """The tool's key, tables or categories, or a header with the columns of one of its CSV files."""
        return Match.exact_if(output_of(probe) is not None)

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The files of a folder with one prefix are one process, in one output or several."""
        groups: dict[tuple[Path, str], list[Path]] = defaultdict(list)
        for path in paths:
            match = _PREFIX.fullmatch(path.name)
            alone = match is None and output_of(Probe(path)) is not Output.CSV
            groups[(path, "") if alone else (path.parent, match[1] if match else "")].append(path)
        return [sorted(files, key=_sort_key) for files in groups.values()]

    def read(self, path: Path, options: Options) -> RawTrace:
        """The run as far as this file tells it, of several processes in a database the first."""
        return self.read_runs([path], options)[0]

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The run of these files, of a database one for each process; XspError where they hold no record."""
        from xsp_ingest.formats.rocprofv3.records import shape

        outputs = {path: output_of(Probe(path)) for path in paths}
        first = outputs[paths[0]]
        own = [path for path in paths if outputs[path] == first]
        runs = [shape(records, options) for records in _records(own, first)]
        runs = [run for run in runs if not run.tables["spans"].is_empty()]
        if not runs:
            raise XspError(
                "the rocprofv3 output holds no kernel, copy, call or marker",
                path=paths[0],
                advice="Trace with --kernel-trace, --memory-copy-trace and --hip-trace",
            )
        again = Finding(LedgerKind.SAME_RUN_AGAIN, f"{own[0].name} was read", len(paths) - len(own))
        return [replace(run, findings=(*run.findings, again)) for run in runs] if again.count else runs


def _records(paths: Sequence[Path], output: Output | None) -> list[Records]:
    from xsp_ingest.formats.rocprofv3.csv_records import from_tables
    from xsp_ingest.formats.rocprofv3.json_records import from_json
    from xsp_ingest.formats.rocprofv3.older_tools import from_dispatches, from_events, from_rocprof, from_rpd
    from xsp_ingest.formats.rocprofv3.perfetto import from_perfetto
    from xsp_ingest.formats.rocprofv3.rocpd import from_rocpd, processes

    if output == Output.JSON:
        return [from_json(path) for path in paths]
    if output == Output.ROCPD:
        return [from_rocpd(process) for path in paths for process in processes(path)]
    if output == Output.PERFETTO:
        return [from_perfetto(path) for path in paths]
    older = {
        Output.RPD: from_rpd,
        Output.EVENTS: from_events,
        Output.ROCPROF: from_rocprof,
        Output.DISPATCHES: from_dispatches,
    }
    if output in older:
        return [older[output](path) for path in paths]
    tables: dict[OutputTable, list[Path]] = defaultdict(list)
    for path in paths:
        table = table_of(Probe(path).text)
        if table is None:
            raise XspError("the file is no output of rocprofv3", path=path)
        tables[table].append(path)
    return [from_tables(tables)]


def _sort_key(path: Path) -> tuple[int, int, str]:
    probe = Probe(path)
    output, table = output_of(probe), table_of(probe.text)
    order = list(OutputTable)
    return (
        len(Output) if output is None else output,
        len(order) if table is None else order.index(table),
        path.name,
    )


ROCPROFV3 = _RocprofV3()
