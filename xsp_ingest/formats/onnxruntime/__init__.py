"""ONNX Runtime profiles: the JSON that a session with `enable_profiling` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["ONNXRUNTIME"]

_FIRST = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"cat"\s*:\s*"(Session|Node|Kernel|Api)"\s*,')
_SAYS_SO = re.compile(rb'"(?:cat"\s*:\s*"(?:Session|Node)|op_name)"')


class OnnxRuntime(Ingester):
    """The ingester of what `InferenceSession.end_profiling()` names."""

    name: str = "onnxruntime"
    title: str = "ONNX Runtime profile JSON, plain or gzip; seen: 1.31 on a CPU"

    def sniff(self, probe: Probe) -> Match:
        """A JSON list whose first event is one of a session, of a node, or of what a node of the profile launched."""
        first = _FIRST.match(probe.text)
        return Match.exact_if(first and (first[1] in {b"Session", b"Node"} or _SAYS_SO.search(probe.text)))

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (a profile has no ranges to choose from)
        """The file's rows; XspError where it is cut off, no JSON, or holds neither a run nor a node."""
        from xsp_ingest.formats.onnxruntime.reader import shape

        return shape(path)


ONNXRUNTIME = OnnxRuntime()
