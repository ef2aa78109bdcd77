"""PyTorch profiler (Kineto) JSON: traces that `torch.profiler` exports for Chrome."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe, content_bytes
from xsp_ingest.files.json_window import outer_keys
from xsp_ingest.files.perfetto import as_chrome_json, json_head
from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.formats.torch_profiler.scan_plain import CannotScan
from xsp_ingest.ingester import IngesterOfRuns, Match
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from xsp_ingest.formats.torch_profiler.events import Document
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["TORCH_PROFILER"]


_OBJECT = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*\{")
_DEVICES = {b"deviceProperties"}
_KINETO = {b"schemaVersion", *_DEVICES}
_TRACE_EVENTS = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*(?:\{.*?"traceEvents"\s*:|\[\s*(?:\]|\{.*?"ph"\s*:))', re.DOTALL)
_DURATION = re.compile(rb'"ph"\s*:\s*"[XBb]"')
_CATEGORY = re.compile(  # as in `categories`, which this need not wait for
    rb'"cat"\s*:\s*"(?:kernel|gpu_mem(?:cpy|set)|Kernel|Mem(?:cpy|set)|(?:cuda|hip|xpu)_(?:runtime|driver)|Runtime'
    rb"|cpu_op|Operator|(?:gpu_)?user_annotation|cuda_sync|python_function|cpu_instant_event|Trace|ac2g|fwdbwd|overhead)\""
)


class _TorchProfiler(IngesterOfRuns):
    name: str = "torch_profiler"
    title: str = (
        "PyTorch profiler (Kineto) JSON, plain or gzip, object or list form; seen: torch 1.8 to 2.13, CUDA and ROCm;"
        " likewise in Perfetto's protobuf, as `xsp export --to perfetto` writes it"
    )

    def sniff(self, probe: Probe) -> Match:
        """Kineto's own keys at the start of an object; else trace events, where they have categories of PyTorch's."""
        text = json_head(probe)
        is_of_others = _DURATION.search(text) and not _CATEGORY.search(text)
        own = _DEVICES if is_of_others else _KINETO  # other tools write `schemaVersion` by itself
        if text is probe.text and _OBJECT.match(text) and any(key in own for key in outer_keys(text)):
            return Match.EXACT
        return Match.GENERIC if _TRACE_EVENTS.match(text) and not is_of_others else Match.NONE

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """A run, or one for each rank whose traces were merged to the file."""
        (path,) = paths
        with as_chrome_json(path, Probe(path)) as odd:
            runs = self._read_runs(path, options)
            return [replace(run, findings=(*run.findings, *odd)) for run in runs] if odd else runs

    def _read_runs(self, path: Path, options: Options) -> Sequence[RawTrace]:
        from xsp_ingest.formats.torch_profiler.shape import shape, shape_parts
        from xsp_ingest.formats.torch_profiler.sound import IdsAreTexts

        with suppress(IdsAreTexts):
            return _runs_of(path, options, lambda documents: [shape(documents, path, options)])
        from xsp_ingest.formats.torch_profiler.merged_ranks import numbered_copy

        with numbered_copy(path) as (copy, parts):
            try:
                return _runs_of(copy, options, lambda documents: shape_parts(documents, copy, options, parts))
            except XspError as error:
                raise XspError(error.what, path=path, advice=error.advice) from error


def _runs_of(
    path: Path, options: Options, shape: Callable[[Iterable[Document]], Sequence[RawTrace]]
) -> Sequence[RawTrace]:
    """Shaped by the scanner that is fastest on this size, or the next one that takes the file; all give the same."""
    size, frames = content_bytes(path), options.frames != "none"
    if size >= limits().compiled_min_bytes:
        with suppress(CannotScan):
            return shape(scanner.documents(path, limits().trace_piece_rows, frames=frames))
    if size >= limits().streamed_min_bytes:
        from xsp_ingest.formats.torch_profiler.streamed import documents

        with suppress(CannotScan):
            return shape(documents(path, limits().trace_piece_rows, frames=frames))
    return shape([scan_plain.scan(path, frames=frames)])


TORCH_PROFILER = _TorchProfiler()
