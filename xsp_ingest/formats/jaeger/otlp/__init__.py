"""Reads OpenTelemetry spans (OTLP JSON): those of any program, as ranges, and those that `xsp export` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["OTLP"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"resource_?[sS]pans"\s*:\s*\[')


class Otlp(Ingester):
    """The ingester of OTLP JSON: one run of what foreign programs wrote, a run each of what `xsp export` did."""

    name: str = "otlp"
    title: str = "OpenTelemetry spans (OTLP JSON), a document or a line a document, plain or gzip; and `xsp export`'s"

    def sniff(self, probe: Probe) -> Match:
        """A JSON object that begins with `resourceSpans`."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's only run; XspError where it holds several."""
        return self.only_run(path, options)

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The runs of the file; XspError where it holds no span with a start and an end."""
        from xsp_ingest.formats.jaeger.otlp.reader import load, shape

        (path,) = paths
        return shape(load(path), path, options)


OTLP = Otlp()
