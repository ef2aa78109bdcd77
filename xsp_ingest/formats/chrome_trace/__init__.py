"""Chrome traces of tools that no other format knows: ranges by thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["CHROME_TRACE"]

_EVENTS = re.compile(
    rb'\A(?:\xef\xbb\xbf)?\s*(?:\{(?:[^\[{]|\[\]|\{[^{}]*\})*?"traceEvents"\s*:\s*\[|\[\s*\{[^{}]*"ph"\s*:)', re.DOTALL
)


class ChromeTrace(Ingester):
    """The ingester of trace events of which no other format knows the tool."""

    name: str = "chrome_trace"
    title: str = "Chrome trace JSON of any tool that no other format knows, as ranges by thread; plain or gzip"

    def sniff(self, probe: Probe) -> Match:
        """Trace events, whoever wrote them."""
        return Match.FORM if _EVENTS.match(probe.text) else Match.NONE

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's ranges and samples; XspError where it is cut off, no JSON, or holds no range."""
        from xsp_ingest.formats.chrome_trace.reader import shape

        return shape(path, options)


CHROME_TRACE = ChromeTrace()
