"""Samples that our runners take beside runs: the lines of their files, and the runs they are of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import polars as pl

from xsp_ingest.files.content import cut_off, lines
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

__all__ = ["SampleFile", "add_samples", "overlapping", "read_lines", "whole_number"]


# Files of samples that our runners write: a line that says the format, a line a sample, a line that says the end.


_VERSION = 1
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last where it nests too deep


class _SaysFormat(Protocol):
    @property
    def format(self) -> str: ...
    @property
    def version(self) -> int: ...


_Header = TypeVar("_Header", bound=_SaysFormat)
_Sample = TypeVar("_Sample")


class _End(msgspec.Struct, frozen=True):
    end: bool


@dataclass(frozen=True, slots=True)
class SampleFile(Generic[_Header, _Sample]):
    """What such a file holds, and what was odd about it."""

    header: _Header
    samples: list[_Sample]
    findings: tuple[Finding, ...]


def read_lines(path: Path, name: str, header: type[_Header], sample: type[_Sample]) -> SampleFile[_Header, _Sample]:
    """The file's header and samples; XspError where it is of no format of that name, of a later version, or cut off."""
    records = (line for block in lines(path) for line in block.splitlines(keepends=True) if line.strip())
    first = _header(next(records, b""), name, header, path)
    samples, bad, ended = _decode_samples(records, sample, path)
    findings = (
        Finding(LedgerKind.BAD_LINE, "lines that are no samples", bad),
        Finding(LedgerKind.NO_END, "the samples have no closing line: what took them was stopped", 0 if ended else 1),
    )
    return SampleFile(first, samples, findings)


def _header(line: bytes, name: str, kind: type[_Header], path: Path) -> _Header:
    try:
        header = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except _NO_JSON as error:
        raise XspError(f"the first line of the samples cannot be read ({error})", path=path) from error
    if header.format != name:
        raise XspError(f"the first line does not say that the file is of {name!r}", path=path)
    if header.version != _VERSION:
        raise XspError(
            f"the samples are of version {header.version} of their format, and version {_VERSION} can be read",
            path=path,
            advice="Use a newer XSP",
        )
    return header


def _decode_samples(records: Iterable[bytes], kind: type[_Sample], path: Path) -> tuple[list[_Sample], int, bool]:
    """Samples, how many lines are none, and whether the closing line is there."""
    sample, end = msgspec.json.Decoder(kind), msgspec.json.Decoder(_End)
    samples: list[_Sample] = []
    bad, ended = 0, False
    for line in records:
        try:
            samples.append(sample.decode(line))
        except _NO_JSON:
            try:
                ended = end.decode(line).end
            except _NO_JSON:
                if not line.endswith(b"\n"):
                    raise cut_off(path, "its last line is no whole sample") from None
                bad += 1
    return samples, bad, ended


# Samples taken beside runs: which runs they were taken beside, and those of a run's own time.


def overlapping(runs: Sequence[RawTrace], rows: pl.DataFrame, path: Path) -> dict[int, tuple[int, int]]:
    """Start and end, in Unix time, of the runs that lasted while samples were taken, by their index.

    XspError where no run says when it was taken, or none was while samples were.
    """
    timed = {n: run.facts.epoch_ns for n, run in enumerate(runs) if run.facts.epoch_ns is not None}
    if not timed:
        raise XspError(
            "the samples cannot be placed: no file given with them says at which Unix time it was taken", path=path
        )
    first, last = whole_number(rows["time_ns"].min()), whole_number(rows["time_ns"].max())
    windows = {n: _window(runs[n], epoch) for n, epoch in timed.items()}
    overlaps = {n: (start, end) for n, (start, end) in windows.items() if start <= last and end >= first}
    if not overlaps:
        raise XspError(
            "the samples are of none of the runs given with them: they were not taken while these lasted",
            path=path,
            advice="Give the file that the sampler wrote beside the run",
        )
    return overlaps


def _window(run: RawTrace, epoch: int) -> tuple[int, int]:
    spans = run.tables["spans"]
    ends = spans.select((pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()).item()
    return whole_number(spans["start_ns"].min()) + epoch, whole_number(ends) + epoch


def add_samples(run: RawTrace, rows: pl.DataFrame, window: tuple[int, int], kind: LedgerKind) -> RawTrace:
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
    tables = {**run.tables, "counters": pl.concat([run.tables["counters"], own])}
    return replace(run, tables=tables, findings=(*run.findings, Finding(kind, count=moments)))


def whole_number(value: object) -> int:
    """The number; 0 where it is none, as the least of no rows."""
    return value if isinstance(value, int) else 0
