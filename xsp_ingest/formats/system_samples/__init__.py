"""Samples of processors, memory, network and disks that the runner system_samples took beside a run."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec
import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.staging.samples import read_lines
from xsp_model import LedgerKind, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_model import Finding

__all__ = ["SYSTEM_SAMPLES", "Samples", "read_samples"]

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
        del options
        samples = read_samples(path)
        first = int(samples.rows.select(pl.col("time_ns").min()).item())
        counters = samples.rows.with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"counters": counters}
        return RawTrace(tables, RunFacts(profiler="/proc", epoch_ns=first), samples.findings)

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the samples taken while they lasted."""
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


# Reads the lines of a file of samples of the machine into rows of counters.

FORMAT = "xsp system samples"
_PREFIX = "system_"
_UNITS: Mapping[str, str] = {
    "cpu_utilization": "share",
    "cpu_iowait": "share",
    "memory_used_bytes": "byte",
    "network_receive_bytes": "byte",
    "network_transmit_bytes": "byte",
    "disk_read_bytes": "byte",
    "disk_write_bytes": "byte",
    "disk_busy": "share",
}
_MAX = 1e18  # beyond, a number is none
_NS_PER_S = 1e9
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Bytes = Annotated[float, msgspec.Meta(ge=0, le=_MAX)]


class _Header(msgspec.Struct, frozen=True):
    format: str
    version: int
    memory_bytes: Annotated[float, msgspec.Meta(gt=0, le=_MAX)] | None = None
    network_byte_per_s: Annotated[float, msgspec.Meta(gt=0, le=_MAX)] | None = None


class _Sample(msgspec.Struct, frozen=True):
    time_ns: Annotated[int, msgspec.Meta(ge=0, lt=LATEST_NS)]
    cpu_utilization: _Share | None = None
    cpu_iowait: _Share | None = None
    memory_used_bytes: _Bytes | None = None
    network_receive_bytes: _Bytes | None = None
    network_transmit_bytes: _Bytes | None = None
    disk_read_bytes: _Bytes | None = None
    disk_write_bytes: _Bytes | None = None
    disk_busy: _Share | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """`rows` as the staging table `counters`, times being Unix time; what was odd."""

    rows: pl.DataFrame
    findings: tuple[Finding, ...]


def read_samples(path: Path) -> Samples:
    """The file's samples; XspError where it is none, of a later version, or holds none."""
    file = read_lines(path, FORMAT, _Header, _Sample)
    header, samples = file.header, file.samples
    if not samples:
        raise XspError("the file holds no samples of the machine", path=path, advice="Sample for longer")
    samples.sort(key=lambda s: s.time_ns)
    series = [_rows(_values(samples, name), name, unit) for name, unit in _UNITS.items()]
    rows = pl.concat([*series, *_of_limits(samples, header)]).sort("counter", "time_ns", maintain_order=True)
    return Samples(rows, file.findings)


def _values(samples: Sequence[_Sample], name: str) -> list[tuple[int, float]]:
    return [(s.time_ns, v) for s in samples if (v := getattr(s, name)) is not None and math.isfinite(v)]


def _rows(values: Sequence[tuple[int, float]], counter: str, unit: str) -> pl.DataFrame:
    table = pl.DataFrame(list(values), schema={"time_ns": pl.Int64(), "value": pl.Float64()}, orient="row")
    return frame_of(
        "counters", table.with_columns(pl.lit(f"{_PREFIX}{counter}").alias("counter"), pl.lit(unit).alias("unit"))
    )


def _of_limits(samples: Sequence[_Sample], header: _Header) -> list[pl.DataFrame]:
    """Shares of what the machine has: of its memory, and of what its links can move since the sample before."""
    frames = []
    if header.memory_bytes:
        used = [(at, min(1.0, v / header.memory_bytes)) for at, v in _values(samples, "memory_used_bytes")]
        frames.append(_rows(used, "memory_utilization", "share"))
    for way in ("network_receive", "network_transmit") if header.network_byte_per_s else ():
        moved = _values(samples, f"{way}_bytes")
        rates = [
            (at, (v - before) * _NS_PER_S / (at - begun))
            for (begun, before), (at, v) in itertools.pairwise(moved)
            if at > begun and v >= before
        ]
        shares = [(at, rate / (header.network_byte_per_s or 1.0)) for at, rate in rates]
        frames.append(_rows(shares, f"{way}_utilization", "share"))
    return frames
