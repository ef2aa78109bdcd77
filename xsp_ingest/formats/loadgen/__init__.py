"""MLPerf LoadGen logs: summary, detail and trace."""

from __future__ import annotations

import re
from collections import defaultdict
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING

from xsp_ingest.distinct import first_alike
from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["LOADGEN"]


class _Log(Enum):
    """Which of the logs a file is, the one that tells most first."""

    TRACE = re.compile(
        rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"traceEvents"\s*:\s*\[\s*\{.*?'
        rb'"name"\s*:\s*"(?:GenerateLoadableSets|GenerateQueries|SampleLoop|IssueQuery|IOThreadLoop)"\s*,\s*"ph"',
        re.DOTALL,
    )
    DETAIL = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*:::MLLOG \{\"key\"")
    SUMMARY = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*={8,}\r?\nMLPerf Results Summary\r?\n")


class _LoadGen(Ingester):
    name: str = "loadgen"
    title: str = "MLPerf LoadGen logs: summary, detail and trace of a test, any of them; seen: LoadGen 4.0 and 4.1"

    def sniff(self, probe: Probe) -> Match:
        """A summary's heading, a log of MLLOG lines, or a Chrome trace of LoadGen's own events."""
        return Match.exact_if(_kind_of(probe) is not None)

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The logs of each test: those of a folder. XspError where it holds two of a kind that are no copies."""
        tests: dict[Path, dict[_Log, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path in paths:
            kind = _kind_of(Probe(path))
            if kind is None:
                raise XspError("the file is no log of LoadGen", path=path)
            of_kind = tests[path.parent][kind]
            if of_kind and first_alike([of_kind[0], path]) == [0, 1]:
                raise XspError(
                    f"the folder holds two LoadGen logs of a kind ({kind.name.lower()})",
                    path=path.parent,
                    advice="Give the logs of one test, or those of each test in a folder of their own",
                )
            of_kind.append(path)
        return [[path for kind in _Log for path in logs.get(kind, ())] for logs in tests.values()]

    def read(self, path: Path, options: Options) -> RawTrace:
        """The run as far as this log tells it."""
        return self._read_together([path], options)

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The run that these logs tell of; XspError where one of them cannot be used."""
        return [self._read_together(paths, options)]

    def _read_together(self, paths: Sequence[Path], options: Options) -> RawTrace:
        from xsp_ingest.formats.loadgen.run import LoggedTest, combine, read_queries, run_of
        from xsp_ingest.formats.loadgen.statements import read_detail, read_summary

        del options  # nothing to choose
        logs = {_kind_of(Probe(path)): path for path in paths}
        readers = {_Log.DETAIL: read_detail, _Log.SUMMARY: read_summary}  # the detail log rounds less
        statements = [read(logs[kind]) for kind, read in readers.items() if kind in logs]
        queries = read_queries(logs[_Log.TRACE]) if _Log.TRACE in logs else None
        return run_of(reduce(combine, statements, LoggedTest()), queries)


def _kind_of(probe: Probe) -> _Log | None:
    return next((kind for kind in _Log if kind.value.match(probe.text)), None)


LOADGEN = _LoadGen()
