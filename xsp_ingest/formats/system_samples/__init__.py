"""Samples of processors, memory, network and disks that the runner system_samples took beside a run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options

__all__ = ["SYSTEM_SAMPLES"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{[^\n]{0,256}?"format"\s*:\s*"xsp system samples"')


class _SystemSamples(Ingester):
    name: str = "system_samples"
    title: str = (
        "samples of processors, memory, network and disks by the runner system_samples (JSON lines), beside other files"
    )
    is_supplement: bool = True

    def sniff(self, probe: Probe) -> Match:
        """JSON lines whose first one says the format."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """The samples alone, as a run without spans."""
        from xsp_ingest.formats.system_samples.samples import read_samples

        del options
        samples = read_samples(path)
        first = int(samples.rows.select(pl.col("time_ns").min()).item())
        counters = samples.rows.with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"counters": counters}
        return RawTrace(tables, RunFacts(profiler="/proc", epoch_ns=first), samples.findings)

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the samples taken while they lasted."""
        from xsp_ingest.formats.system_samples.samples import read_samples
        from xsp_ingest.staging.samples import add_samples, overlapping

        samples = read_samples(path)
        windows = overlapping(runs, samples.rows, path)
        with_samples = list(runs)
        for index, window in windows.items():
            with_samples[index] = add_samples(runs[index], samples.rows, window, LedgerKind.SYSTEM_JOINED)
        first = next(iter(windows))
        findings = (*with_samples[first].findings, *samples.findings)
        with_samples[first] = replace(with_samples[first], findings=findings)
        return with_samples


SYSTEM_SAMPLES = _SystemSamples()
