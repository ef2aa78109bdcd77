"""TensorRT: what `trtexec --exportProfile` and `trtexec --exportTimes` write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["TENSORRT"]

_PROFILE = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"count"\s*:')
_TIMES = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"(?:start(?:Enq|In|H2d|Compute)|latency|compute)Ms"\s*:')


class TensorRt(Ingester):
    """The ingester of trtexec's exports."""

    name: str = "tensorrt"
    title: str = (
        "TensorRT `trtexec --exportProfile` (layers of a mean inference) and `--exportTimes` (each inference);"
        " seen: TensorRT 7 and 8"
    )

    def sniff(self, probe: Probe) -> Match:
        """A JSON list whose first object is a profile's count, or an inference's times."""
        return Match.exact_if(_PROFILE.match(probe.text) or _TIMES.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (the files have no ranges to choose from)
        """The file's rows; XspError where it is cut off, no JSON, or holds no time that can be used."""
        from xsp_ingest.formats.tensorrt.reader import read_profile, read_times

        return read_profile(path) if _PROFILE.match(Probe(path).text) else read_times(path)


TENSORRT = TensorRt()
