"""Chrome traces of tools that no other format knows: ranges by thread."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.files.json_window import outer_keys
from xsp_ingest.files.perfetto import as_chrome_json, json_head
from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["CHROME_TRACE"]

_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(\{|\[\s*+(?=\{))")
_LIST = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_KEYS = 256  # that an object may have, or its first events, before the one that is looked for


class ChromeTrace(Ingester):
    """The ingester of trace events of which no other format knows the tool."""

    name: str = "chrome_trace"
    title: str = (
        "Chrome trace JSON or Perfetto protobuf of any tool that no other format knows, as ranges by thread;"
        " plain or gzip; seen: JSON of some 15 tools, Perfetto's by its schema (59)"
    )

    def sniff(self, probe: Probe) -> Match:
        """Trace events, whoever wrote them."""
        text = json_head(probe)
        opening = _OPENING.match(text)
        if opening is None:
            return Match.NONE
        is_object = opening[1] == b"{"
        keys = islice(outer_keys(text if is_object else text[opening.end() :]), _KEYS)
        is_one = (b"traceEvents" in keys and _LIST.search(text)) if is_object else b"ph" in keys
        return Match.FORM if is_one else Match.NONE

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's ranges and samples; XspError where it is cut off, no JSON, or holds no range."""
        from xsp_ingest.formats.chrome_trace.reader import shape

        with as_chrome_json(path, Probe(path)) as odd:
            raw = shape(path, options)
            return replace(raw, findings=(*raw.findings, *odd)) if odd else raw


CHROME_TRACE = ChromeTrace()
