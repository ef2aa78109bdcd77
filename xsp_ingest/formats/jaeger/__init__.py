"""Reads Jaeger JSON: traces that MLModelScope (the first XSP) wrote, and those that `xsp export` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.jaeger.document import JaegerTrace
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["JAEGER"]

_SCALAR = rb'"(?:total|limit|offset|errors)"\s*:\s*(?:\d+|null)\s*,\s*'
_KEYS = rb'"(?:traceID|spans|processes)"\s*:'
_HEAD = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*\{\s*(?:"
    + _SCALAR
    + rb')*(?:"data"\s*:\s*\[\s*(?:\]|\{\s*'
    + _KEYS
    + rb")|"
    + _KEYS
    + rb")"
)


class Jaeger(Ingester):
    """The ingester of Jaeger JSON; each trace in a file is a run, or several where it tells of several levels."""

    name: str = "jaeger"
    title: str = "Jaeger JSON, plain or gzip, as MLModelScope (the first XSP) wrote it and as `xsp export` does"

    def sniff(self, probe: Probe) -> Match:
        """A JSON object that starts with a list `data` of traces, or as one trace."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's only run; XspError where it holds several."""
        return self.only_run(path, options)

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """A run for each trace that holds spans and each level in it; XspError where none does."""
        from xsp_ingest.formats.jaeger.document import load

        (path,) = paths
        traces = [trace for trace in load(path) if trace.spans]
        if not traces:
            raise XspError("the file holds no spans", path=path, advice="Export the trace again")
        runs = _runs(traces, options, path)
        if all(run.tables["spans"].is_empty() for run in runs):
            raise XspError("no span of the file has a start and a duration", path=path)
        return runs


def _runs(traces: Sequence[JaegerTrace], options: Options, path: Path) -> Sequence[RawTrace]:
    from xsp_ingest.formats.jaeger.document import facts_of_export, read_exported
    from xsp_ingest.formats.jaeger.levels import evaluations, with_levels
    from xsp_ingest.formats.jaeger.mlmodelscope import read_mlmodelscope

    exported = [facts_of_export(trace) for trace in traces]
    if all(run is None for run in exported):
        traces = [part for trace in traces for part in evaluations(trace)]
        return with_levels(traces, [read_mlmodelscope(trace, options) for trace in traces])
    return [
        read_mlmodelscope(trace, options) if run is None else read_exported(trace, run, path)
        for trace, run in zip(traces, exported, strict=True)
    ]


JAEGER = Jaeger()
