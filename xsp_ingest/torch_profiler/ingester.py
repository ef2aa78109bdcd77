"""Recognises and reads PyTorch profiler traces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.torch_profiler import scan_plain
from xsp_ingest.torch_profiler.shape import shape

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Options, Probe
    from xsp_ingest.raw import RawTrace

__all__ = ["TORCH_PROFILER"]

_OBJECT = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{.*?"(?:schemaVersion|traceEvents|deviceProperties)"\s*:', re.DOTALL)
_LIST = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*(?:\]|\{.*?"ph"\s*:)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _TorchProfiler:
    name: str = "torch_profiler"
    title: str = (
        "PyTorch profiler (Kineto) JSON, plain or gzip, object or list form; seen: torch 1.8 to 2.13, CUDA and ROCm"
    )

    def sniff(self, probe: Probe) -> bool:
        """JSON that starts as an object with one of Kineto's keys, or as a list of Chrome trace events."""
        return bool(_OBJECT.match(probe.text) or _LIST.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows."""
        return shape(scan_plain.scan(path), path, options)


TORCH_PROFILER = _TorchProfiler()
