"""Load tests of serving engines, as the clients that sent the requests state them."""

from __future__ import annotations

import re
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import IngesterOfRuns, Match

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["SERVING_LOAD"]

_OPEN = rb"\A(?:\xef\xbb\xbf)?\s*\{"


class _Result(Enum):
    """Which form a file has; of one test those of aiperf may lie side by side, the one with figures first."""

    FLAT = re.compile(
        _OPEN.replace(rb"\{", rb"(?:\[\s*)?\{")
        + rb'(?=.*?"total_input_tokens"\s*:)(?=.*?"request_throughput"\s*:\s*-?[\d.NI])',
        re.DOTALL,
    )
    SUMMARY = re.compile(_OPEN + rb'.*?"(?:request_latency|time_to_first_token)"\s*:\s*\{\s*"(?:unit|avg)"', re.DOTALL)
    RECORDS = re.compile(_OPEN + rb'\s*"metadata"\s*:\s*\{[^{}]*"request_start_ns"')
    EXPERIMENTS = re.compile(_OPEN + rb'.*?"experiments"\s*:\s*\[.*?"response_timestamps"', re.DOTALL)


class _ServingLoad(IngesterOfRuns):
    name: str = "serving_load"
    title: str = (
        "Load tests of serving engines: results of `vllm bench serve`, SGLang's bench_serving, aiperf and genai-perf;"
        " by their sources, none seen"
    )

    def sniff(self, probe: Probe) -> Match:
        """An object with a rate of requests and counts of tokens, metrics with units, or requests with their times."""
        return Match.exact_if(_kind_of(probe) is not None)

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """Of a folder with one file of figures and one of requests of aiperf both; every other file by itself."""
        folders: dict[Path, dict[_Result | None, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path in paths:
            folders[path.parent][_kind_of(Probe(path))].append(path)
        units: list[list[Path]] = []
        for kinds in folders.values():
            pair = [kinds[_Result.SUMMARY], kinds[_Result.RECORDS] or kinds[_Result.EXPERIMENTS]]
            if [len(each) for each in pair] == [1, 1]:
                units.append([pair[0].pop(), pair[1].pop()])
            units += [[path] for of_kind in kinds.values() for path in of_kind]
        return units

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """A run for each test; XspError where the files hold neither figures nor requests."""
        from xsp_ingest.formats.serving_load import results

        strict = options.strict_json
        kinds = {_kind_of(Probe(path)) or _Result.FLAT: path for path in paths}
        if _Result.FLAT in kinds:
            return [results.run_of(test, paths[0], strict=strict) for test in results.read_flat(paths[0])]
        test = results.LoadResult()
        if _Result.SUMMARY in kinds:
            test = results.read_summary(kinds[_Result.SUMMARY])
        if _Result.RECORDS in kinds:
            results.add_records(test, kinds[_Result.RECORDS])
        if _Result.EXPERIMENTS in kinds:
            results.add_experiments(test, kinds[_Result.EXPERIMENTS])
        return [results.run_of(test, paths[0], strict=strict)]


def _kind_of(probe: Probe) -> _Result | None:
    return next((kind for kind in _Result if kind.value.search(probe.text)), None)


SERVING_LOAD = _ServingLoad()
