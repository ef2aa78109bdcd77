"""Recognises and reads PyTorch profiler traces."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.cannot_scan import CannotScan
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.formats.torch_profiler.scan_source import content_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options, Probe
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["STREAM_BYTES", "TORCH_PROFILER"]

STREAM_BYTES = 1 << 18
"""Content smaller than this is read by the standard library's `json`: to get msgspec ready would take longer."""

_OBJECT = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{.*?"(?:schemaVersion|traceEvents|deviceProperties)"\s*:', re.DOTALL)
_KINETO = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{.*?"(?:schemaVersion|deviceProperties)"\s*:', re.DOTALL)
_OTHERS = re.compile(  # events by which other tools' Chrome traces are known: LoadGen's, TensorFlow's, MXNet's
    rb'"name"\s*:\s*"(?:GenerateLoadableSets|GenerateQueries|SampleLoop|IssueQuery|IOThreadLoop)"\s*,\s*"ph"'
    rb'|"name"\s*:\s*"(?:Allocators|/host:CPU|/device:GPU:\d+|cpu/0)"'
)
_LIST = re.compile(  # not one that begins with an event of an ONNX Runtime session
    rb'\A(?:\xef\xbb\xbf)?\s*\[\s*(?!\{\s*"cat"\s*:\s*"(?:Session|Node)"\s*,)(?:\]|\{.*?"ph"\s*:)', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _TorchProfiler:
    name: str = "torch_profiler"
    title: str = (
        "PyTorch profiler (Kineto) JSON, plain or gzip, object or list form; seen: torch 1.8 to 2.13, CUDA and ROCm"
    )

    def sniff(self, probe: Probe) -> bool:
        """JSON that starts as an object with one of Kineto's keys, or as a list of Chrome trace events.

        An object with no key of Kineto's but `traceEvents` is one unless its events are another tool's.
        """
        text = probe.text
        if _LIST.match(text):
            return True
        return bool(_OBJECT.match(text)) and bool(_KINETO.match(text) or not _OTHERS.search(text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows."""
        from xsp_ingest.formats.torch_profiler.shape import shape

        # The scanner that is fastest on this size reads the file, or leaves it to the next one; all give the same.
        size = content_bytes(path)
        if size >= scanner.MIN_BYTES:
            with suppress(CannotScan):
                return shape(scanner.documents(path, scanner.PIECE_ROWS), path, options)
        if size >= STREAM_BYTES:
            from xsp_ingest.formats.torch_profiler.streamed import scanner as streamed

            with suppress(CannotScan):
                return shape(streamed.documents(path, scanner.PIECE_ROWS), path, options)
        return shape([scan_plain.scan(path)], path, options)


TORCH_PROFILER = _TorchProfiler()
