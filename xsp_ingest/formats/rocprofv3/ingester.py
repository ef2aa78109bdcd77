"""Recognises and reads what rocprofv3 writes."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.files.probe import Probe
from xsp_ingest.formats.rocprofv3.csv_records import Table, from_tables, table_of
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["ROCPROFV3"]

_JSON = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')
_PREFIX = re.compile(r"(.*?)_?(?:kernel|memory_copy|(?:hip|hsa|marker|rccl)_api)_trace\.csv|(.*?)_?agent_info\.csv")


@dataclass(frozen=True, slots=True)
class _RocprofV3(Ingester):
    name: str = "rocprofv3"
    title: str = "rocprofv3 (ROCprofiler-SDK) JSON, and its CSV traces of kernels, copies, calls, markers and agents"

    def sniff(self, probe: Probe) -> Match:
        """The tool's key at the start of JSON, or a header with the columns of one of its CSV files."""
        return Match.exact_if(_JSON.match(probe.text) or table_of(probe.text) is not None)

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The CSV files of a folder with one prefix are one process; a JSON file is a run of its own."""
        groups: dict[tuple[Path, str], list[Path]] = defaultdict(list)
        for path in paths:
            found = _PREFIX.fullmatch(path.name)
            prefix = (found[1] or found[2] or "") if found else ""
            alone = _JSON.match(Probe(path).text)
            groups[path, "JSON"].append(path) if alone else groups[path.parent, prefix].append(path)
        order = list(Table)
        return [sorted(files, key=lambda f: _place(f, order)) for files in groups.values()]

    def read(self, path: Path, options: Options) -> RawTrace:
        """The run as far as this file tells it."""
        return self._read_together([path], options)

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The run of these files; XspError where one is damaged or they hold no record."""
        return [self._read_together(paths, options)]

    def _read_together(self, paths: Sequence[Path], options: Options) -> RawTrace:
        from xsp_ingest.formats.rocprofv3.json_records import from_json
        from xsp_ingest.formats.rocprofv3.shape import shape

        if _JSON.match(Probe(paths[0]).text):
            records = from_json(paths[0])
        else:
            tables: dict[Table, list[Path]] = defaultdict(list)
            for path in paths:
                table = table_of(Probe(path).text)
                if table is None:
                    raise XspError("the file is no CSV trace of rocprofv3", path=path)
                tables[table].append(path)
            records = from_tables(tables)
        raw = shape(records, options)
        if raw.tables["spans"].is_empty():
            raise XspError(
                "the rocprofv3 output holds no kernel, copy, call or marker",
                path=paths[0],
                advice="Trace with --kernel-trace, --memory-copy-trace and --hip-trace",
            )
        return raw


def _place(path: Path, order: Sequence[Table]) -> tuple[int, str]:
    table = table_of(Probe(path).text)
    return (len(order) if table is None else order.index(table)), path.name


ROCPROFV3 = _RocprofV3()
