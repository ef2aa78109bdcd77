"""Samples of power, clocks, temperature, memory and utilisation that the runner nvml took beside a run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options

__all__ = ["NVML_SAMPLES"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{[^\n]{0,256}?"format"\s*:\s*"xsp nvml samples"')


class _NvmlSamples(Ingester):
    name: str = "nvml_samples"
    title: str = (
        "samples of power, clocks, temperature, memory, utilisation by the runner nvml (JSON lines), beside other files"
    )
    is_supplement: bool = True

    def sniff(self, probe: Probe) -> Match:
        """JSON lines whose first one says the format."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The samples alone, as a run without spans."""
        from xsp_ingest.formats.nvml_samples.samples import read_samples

        del options
        samples = read_samples(path)
        first = _number(samples.rows["time_ns"].min())
        counters = samples.rows.with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"counters": counters, "devices": samples.devices}
        return RawTrace(tables, RunFacts(profiler=f"NVML ({samples.source})", epoch_ns=first), samples.findings)

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the samples taken while they lasted, a device's in the first run that used it."""
        from xsp_ingest.formats.nvml_samples.samples import read_samples
        from xsp_ingest.staging.samples import add_samples, overlapping

        samples = read_samples(path)
        windows = overlapping(runs, samples.rows, path)
        used = {index: _devices(runs[index]) for index in windows}
        every: set[int] = set().union(*used.values())
        with_samples = list(runs)
        taken: set[int] = set()
        for index, window in windows.items():
            # Where no run tells of devices, all belong to the first.
            own = (used[index] if every else set(samples.rows["device_id"].to_list())) - taken
            taken |= own
            sampled = samples.rows.filter(pl.col("device_id").is_in(list(own)))
            with_samples[index] = add_samples(runs[index], sampled, window, LedgerKind.NVML_JOINED)
        first = next(iter(windows))
        others = samples.rows.filter(~pl.col("device_id").is_in(list(taken)))["device_id"].n_unique()
        unused = Finding(LedgerKind.GPU_NOT_USED, count=others)
        with_samples[first] = replace(
            with_samples[first], findings=(*with_samples[first].findings, *samples.findings, unused)
        )
        return with_samples


def _devices(run: RawTrace) -> set[int]:
    return set(run.tables["spans"]["device_id"].drop_nulls().to_list())


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


NVML_SAMPLES = _NvmlSamples()
