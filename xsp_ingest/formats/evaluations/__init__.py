"""Evaluations that the original XSP's authors published: MLModelScope's documents, dlperf's benchmarks of layers."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import IngesterOfRuns, Match

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["EVALUATIONS"]

_LIST = rb"\A(?:\xef\xbb\xbf)?\s*\[\s*\{"
_DOCUMENT = re.compile(
    _LIST + rb'[^{}\[\]]*"(?:machine_architecture|created_at)"\s*:(?=.*"machine_architecture"\s*:)', re.DOTALL
)
_MODEL = re.compile(rb'"model_name"\s*:\s*("[^"]*")\s*,\s*"model_version"\s*:\s*("[^"]*")')
_LAYERS = re.compile(_LIST + rb'\s*"type"\s*:\s*"[^"]*"\s*,\s*"benchmark"\s*:\s*\{.*"Name"\s*:\s*"LAYER_CU', re.DOTALL)
_LATENCIES = re.compile(rb"\A(?:\xef\xbb\xbf)?LayerName,LayerType,BenchmarkName,RealTime\(ms\),")


class _Evaluations(IngesterOfRuns):
    name: str = "evaluations"
    title: str = (
        "Evaluations that the original's authors published: MLModelScope's documents (latency_throughput, layer_tree,"
        " accuracy; 2017) and dlperf's benchmarks of layers (2019)"
    )

    def sniff(self, probe: Probe) -> Match:
        """A list of objects with a machine_architecture, or of benchmarks of layers; or dlperf's table of latencies."""
        return Match.exact_if(any(form.search(probe.text) for form in (_LATENCIES, _DOCUMENT, _LAYERS)))

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The documents of one model that lie in one folder; benchmarks by themselves."""
        groups: dict[tuple[object, ...], list[Path]] = defaultdict(list)
        for path in paths:
            probe = Probe(path)
            model = _MODEL.search(probe.text) if _DOCUMENT.search(probe.text) else None
            groups[(path.parent, *model.groups()) if model else (path,)].append(path)
        return list(groups.values())

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """A run for each system, batch size and level; of benchmarks one."""
        from xsp_ingest.formats.evaluations.documents import read_benchmarks, read_documents, read_latencies

        if _LATENCIES.search(Probe(paths[0]).text):
            return [read_latencies(paths[0])]
        if _LAYERS.search(Probe(paths[0]).text):
            return [read_benchmarks(paths[0])]
        return read_documents(paths, keep_private=options.keep_private)


EVALUATIONS = _Evaluations()
