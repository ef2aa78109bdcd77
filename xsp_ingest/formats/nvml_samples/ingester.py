"""Recognises samples of the GPUs' state, and joins them to the runs beside which they were taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.nvml_samples.samples import read_samples
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.probe import Probe
    from xsp_ingest.ingester import Options

__all__ = ["NVML_SAMPLES"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{[^\n]{0,256}?"format"\s*:\s*"xsp nvml samples"')


@dataclass(frozen=True, slots=True)
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
        del options
        found = read_samples(path)
        first = _number(found.rows["time_ns"].min())
        counters = found.rows.with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"counters": counters, "devices": found.devices}
        return RawTrace(tables, RunFacts(profiler=f"NVML ({found.source})", epoch_ns=first), found.findings)

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the samples taken while they lasted, a device's in the first run that used it."""
        found = read_samples(path)
        windows = _overlapping(runs, found.rows, path)
        used = {place: _devices(runs[place]) for place in windows}
        every: set[int] = set().union(*used.values())
        joined = list(runs)
        taken: set[int] = set()
        for place, window in windows.items():
            # Where no run tells of devices, all belong to the first.
            own = (used[place] if every else set(found.rows["device_id"].to_list())) - taken
            taken |= own
            joined[place] = _joined(runs[place], found.rows.filter(pl.col("device_id").is_in(list(own))), window)
        first = next(iter(windows))
        others = found.rows.filter(~pl.col("device_id").is_in(list(taken)))["device_id"].n_unique()
        unused = Finding(LedgerKind.GPU_NOT_USED, count=others)
        joined[first] = replace(joined[first], findings=(*joined[first].findings, *found.findings, unused))
        return joined


def _overlapping(runs: Sequence[RawTrace], rows: pl.DataFrame, path: Path) -> dict[int, tuple[int, int]]:
    """Start and end, in Unix time, of the runs that lasted while samples were taken, by their place."""
    timed = {n: run.facts.epoch_ns for n, run in enumerate(runs) if run.facts.epoch_ns is not None}
    if not timed:
        raise XspError(
            "the samples cannot be placed: no file given with them says at which Unix time it was taken", path=path
        )
    first, last = _number(rows["time_ns"].min()), _number(rows["time_ns"].max())
    windows = {n: _window(runs[n], epoch) for n, epoch in timed.items()}
    found = {n: (start, end) for n, (start, end) in windows.items() if start <= last and end >= first}
    if not found:
        raise XspError(
            "the samples are of none of the runs given with them: they were not taken while these lasted",
            path=path,
            advice="Give the file that the sampler wrote beside the run",
        )
    return found


def _window(run: RawTrace, epoch: int) -> tuple[int, int]:
    spans = run.tables["spans"]
    ends = spans.select((pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()).item()
    return _number(spans["start_ns"].min()) + epoch, _number(ends) + epoch


def _devices(run: RawTrace) -> set[int]:
    return set(run.tables["spans"]["device_id"].drop_nulls().to_list())


def _joined(run: RawTrace, rows: pl.DataFrame, window: tuple[int, int]) -> RawTrace:
    """The run with the samples of its time, and of each series the last before and the first after it."""
    start, end = window
    series = ["counter", "device_id"]
    before = pl.col("time_ns") == pl.col("time_ns").filter(pl.col("time_ns") < start).max().over(series)
    after = pl.col("time_ns") == pl.col("time_ns").filter(pl.col("time_ns") > end).min().over(series)
    kept = rows.filter(
        pl.col("time_ns").is_between(start, end) | before.fill_null(value=False) | after.fill_null(value=False)
    )
    own = kept.with_columns(pl.col("time_ns") - (run.facts.epoch_ns or 0))
    moments = rows.filter(pl.col("time_ns").is_between(start, end))["time_ns"].n_unique()
    finding = Finding(LedgerKind.NVML_JOINED, count=moments)
    tables = {**run.tables, "counters": pl.concat([run.tables["counters"], own])}
    return replace(run, tables=tables, findings=(*run.findings, finding))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


NVML_SAMPLES = _NvmlSamples()
