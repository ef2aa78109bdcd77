"""Samples taken beside runs: which runs they were taken beside, and those of a run's own time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Finding, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace
    from xsp_model import LedgerKind

__all__ = ["add_samples", "overlapping"]


def overlapping(runs: Sequence[RawTrace], rows: pl.DataFrame, path: Path) -> dict[int, tuple[int, int]]:
    """Start and end, in Unix time, of the runs that lasted while samples were taken, by their index.

    XspError where no run says when it was taken, or none was while samples were.
    """
    timed = {n: run.facts.epoch_ns for n, run in enumerate(runs) if run.facts.epoch_ns is not None}
    if not timed:
        raise XspError(
            "the samples cannot be placed: no file given with them says at which Unix time it was taken", path=path
        )
    first, last = _number(rows["time_ns"].min()), _number(rows["time_ns"].max())
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
    return _number(spans["start_ns"].min()) + epoch, _number(ends) + epoch


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


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
