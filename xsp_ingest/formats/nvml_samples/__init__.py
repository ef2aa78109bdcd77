"""Samples of power, clocks, temperature, memory and utilisation that the runner nvml took beside a run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec
import polars as pl

from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.staging.samples import read_lines, whole_number
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options

__all__ = ["NVML_SAMPLES", "Samples", "read_samples"]

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
        del options
        samples = read_samples(path)
        first = whole_number(samples.rows["time_ns"].min())
        counters = samples.rows.with_columns(pl.col("time_ns") - first)
        tables = {name: frame_of(name) for name in RAW_TABLES} | {"counters": counters, "devices": samples.devices}
        return RawTrace(tables, RunFacts(profiler=f"NVML ({samples.source})", epoch_ns=first), samples.findings)

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the samples taken while they lasted, a device's in the first run that used it."""
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


NVML_SAMPLES = _NvmlSamples()


# Reads the lines of a file of samples into rows of counters.

FORMAT = "xsp nvml samples"
_UNITS: Mapping[str, str] = {
    "power_w": "W",
    "energy_j": "J",  # since the driver was loaded; here since the first sample
    "sm_clock_hz": "Hz",
    "memory_clock_hz": "Hz",
    "temperature_c": "degC",
    "memory_used_bytes": "byte",
    "gpu_utilization": "share",
    "memory_utilization": "share",
}
_THROTTLE = "throttle_"
_IDLE = "gpu_idle"  # no reason to worry
_MAX = 1e18  # beyond, a number is none


class _Device(msgspec.Struct, frozen=True):
    device: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    name: str | None = None


class _Header(msgspec.Struct, frozen=True):
    format: str
    version: int
    source: str | None = None
    interval_ns: Annotated[int, msgspec.Meta(gt=0)] | None = None
    devices: list[_Device] = []


class _Sample(msgspec.Struct, frozen=True):
    time_ns: Annotated[int, msgspec.Meta(ge=0, lt=LATEST_NS)]
    device: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    memory_used_bytes: float | None = None
    gpu_utilization: float | None = None
    memory_utilization: float | None = None
    throttle: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """`rows` as the staging table `counters`, times being Unix time; names of the devices; what was odd."""

    rows: pl.DataFrame
    devices: pl.DataFrame
    source: str
    findings: tuple[Finding, ...]


def read_samples(path: Path) -> Samples:
    """The file's samples; XspError where it is none, of a later version, or holds none."""
    file = read_lines(path, FORMAT, _Header, _Sample)
    header, samples = file.header, file.samples
    if not samples:
        raise XspError("the file holds no samples of a GPU", path=path, advice="Sample for longer than an instant")
    series = [*(_series(samples, name, unit) for name, unit in _UNITS.items()), _throttle_reasons(samples)]
    rows = pl.concat(series).sort("counter", "device_id", "time_ns", maintain_order=True)
    names = {"device_id": [d.device for d in header.devices], "name": [d.name for d in header.devices]}
    devices = frame_of("devices", pl.DataFrame(names, schema={"device_id": pl.Int64, "name": pl.String}))
    return Samples(
        rows, devices.unique("device_id", keep="first", maintain_order=True), header.source or "NVML", file.findings
    )


def _rows(times: list[tuple[int, int, float]], counter: str, unit: str) -> pl.DataFrame:
    schema = {"time_ns": pl.Int64(), "device_id": pl.Int64(), "value": pl.Float64()}
    table = pl.DataFrame(times, schema=schema, orient="row")
    return frame_of("counters", table.with_columns(pl.lit(counter).alias("counter"), pl.lit(unit).alias("unit")))


def _series(samples: list[_Sample], name: str, unit: str) -> pl.DataFrame:
    """One counter; energy counts from each device's first sample, as what was before is not the run's."""
    values = [(s.time_ns, s.device, v) for s in samples if (v := getattr(s, name)) is not None and _sound(v)]
    rows = _rows(values, name, unit)
    if name != "energy_j":
        return rows
    return rows.sort("time_ns", maintain_order=True).with_columns(
        pl.col("value") - pl.col("value").first().over("device_id")
    )


def _sound(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _MAX


def _throttle_reasons(samples: list[_Sample]) -> pl.DataFrame:
    """0 or 1 over time for each reason that held at some time."""
    reasons = sorted({reason for s in samples for reason in s.throttle or () if reason != _IDLE})
    reported = [s for s in samples if s.throttle is not None]
    frames = [
        _rows(
            [(s.time_ns, s.device, float(reason in (s.throttle or ()))) for s in reported],
            f"{_THROTTLE}{reason}",
            "share",
        )
        for reason in reasons
    ]
    return pl.concat(frames) if frames else frame_of("counters")
