"""Trace JSON of TensorFlow's and JAX's profilers: `*.trace.json.gz`, which TensorBoard's trace viewer shows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match
from xsp_model import Finding, LedgerKind, Severity, XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["XLA_TRACE_JSON"]

_OBJECT = re.compile(
    rb'\A(?:\xef\xbb\xbf)?\s*+\{\s*+"displayTimeUnit"\s*+:\s*+"ns"\s*+,\s*+"metadata"\s*+:\s*+\{[^{}]{0,200}"highres-ticks"'
)
_PROCESS = re.compile(rb'"name"\s*+:\s*+"/(?:host|device):')


class XlaTraceJson(Ingester):
    """The ingester of `*.trace.json.gz`."""

    name: str = "xla_trace_json"
    exported_with: str | None = ".xplane.pb"
    own_ending: str | None = ".trace.json"
    title: str = "trace JSON of TensorFlow's and JAX's profilers (*.trace.json.gz); seen: JAX 0.10"

    def sniff(self, probe: Probe) -> Match:
        """A Chrome trace in ns with high-resolution ticks, one of whose processes is called as a plane is."""
        return Match.exact_if(_OBJECT.match(probe.text) and _PROCESS.search(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows, as the profile's it was made from; XspError where it holds no events."""
        from xsp_ingest.formats.xplane.shape import shape
        from xsp_ingest.formats.xplane.trace_json.planes import read_planes

        plane_file = read_planes(path)
        if not plane_file.planes:
            raise XspError(
                "the trace names no planes", path=path, advice="Is it a .trace.json.gz of TensorFlow or JAX?"
            )
        raw = shape(plane_file.planes, path, options)
        is_full = plane_file.events >= limits().xla_max_events
        cut = Finding(LedgerKind.CUT_AT_A_MILLION, count=plane_file.events if is_full else 0)
        odd = Finding(
            LedgerKind.NOT_AN_EVENT,
            "entries of traceEvents are no objects, or have no start or process",
            plane_file.seen.foreign,
        )
        detail = "stretches of the file with bytes that are not UTF-8; those show as U+FFFD"
        foreign = Finding(LedgerKind.NOT_UTF8, detail, plane_file.seen.not_utf8, severity=Severity.WARNING)
        return replace(raw, findings=(*raw.findings, cut, odd, foreign))


XLA_TRACE_JSON = XlaTraceJson()
