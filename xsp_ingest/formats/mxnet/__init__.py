"""MXNet profiles: the Chrome JSON that `mxnet.profiler.dump()` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["MXNET"]

_FIRST = re.compile(  # the lane of the first processor comes first in every profile
    rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"traceEvents"\s*:\s*\[\s*\{[^{}]*"ph"\s*:\s*"M"[^{}]*'
    rb'"args"\s*:\s*\{\s*"name"\s*:\s*"cpu/0"'
)


class MxNet(Ingester):
    """The ingester of `mxnet.profiler.dump()`, and of `mx.profiler.dump_profile()` before MXNet 1.2."""

    name: str = "mxnet"
    title: str = "MXNet profiler JSON (Chrome events), plain or gzip; MXNet 0.9 to 1.x by its source, none seen"

    def sniff(self, probe: Probe) -> Match:
        """A JSON object whose first event names the lane `cpu/0`."""
        return Match.exact_if(_FIRST.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it is cut off, no JSON, or holds no operator."""
        from xsp_ingest.formats.mxnet.reader import shape

        return shape(path, options)


MXNET = MxNet()
