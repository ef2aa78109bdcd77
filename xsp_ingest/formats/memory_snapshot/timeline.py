"""Reads what `export_memory_timeline` writes: raw events, or sizes by category over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.json_walk import EACH, Targets, walk
from xsp_ingest.formats.memory_snapshot.moments import MOMENTS, WHAT, column
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_events", "read_sizes"]

_MAX = 1 << 52  # us and bytes; beyond, a number is none
_EVENTS = Targets(WHAT, lists={(): list[int]})
_SIZES = Targets(WHAT, lists={(EACH,): int | list[int]})


def read_events(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from raw events: time in ns (-1: before the profile began), action, bytes with their sign, category."""
    before = unusable = 0
    frames = [pl.DataFrame(schema={"time_ns": pl.Int64, "bytes": pl.Int64})]
    for part in walk(path, _EVENTS):
        sound = [e for e in part.content if len(e) == 4 and abs(e[0]) < _MAX * 1_000 and abs(e[2]) < _MAX]  # noqa: PLR2004
        unusable += len(part.content) - len(sound)
        before += sum(e[2] for e in sound if e[0] < 0)
        timed = [e for e in sound if e[0] >= 0]
        frames.append(pl.DataFrame({"time_ns": column([e[0] for e in timed]), "bytes": column([e[2] for e in timed])}))
    # A new version of a tensor leaves one category and enters another in one moment: no change in sum.
    moments = _summed(frames).filter(pl.col("bytes") != 0)
    moments = moments.with_columns((pl.col("bytes").cum_sum() + before).alias("allocated_bytes"))
    return _not_empty(moments, path), _doubts(unusable)


def _summed(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The bytes of each moment in sum, in order of time; the frames are used up. Groups take more room than rows."""
    times = np.concatenate([frame["time_ns"].to_numpy() for frame in frames])
    sizes = np.concatenate([frame["bytes"].to_numpy() for frame in frames])
    frames.clear()
    if np.any(times[1:] < times[:-1]):  # else they stand in order, as they do as a rule
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
        del order
    first = np.flatnonzero(np.diff(times, prepend=-1))  # no time is negative here
    sums = np.add.reduceat(sizes, first) if len(first) else sizes
    return pl.DataFrame({"time_ns": times[first], "bytes": sums})


def read_sizes(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from times in us and, for each, sizes by category."""
    times, sizes = [column([])], [column([])]
    for part in walk(path, _SIZES):
        if part.numbers == (0,):
            times.append(column([_inside(entry) for entry in part.content]))
        elif part.numbers == (1,):
            sizes.append(column([_sum(entry) for entry in part.content]))
    all_times, all_sizes = pl.concat(times), pl.concat(sizes)
    count = min(len(all_times), len(all_sizes))
    pairs = pl.DataFrame({"time_ns": all_times[:count] * 1_000, "allocated_bytes": all_sizes[:count]}).drop_nulls()
    moments = pairs.with_columns(pl.col("allocated_bytes").diff().alias("bytes"))
    return _not_empty(moments, path), _doubts(max(len(all_times), len(all_sizes)) - pairs.height)


def _inside(entry: int | list[int]) -> int | None:
    return entry if isinstance(entry, int) and abs(entry) < _MAX else None


def _sum(entry: int | list[int]) -> int | None:
    return sum(entry) if isinstance(entry, list) and all(abs(size) < _MAX for size in entry) else None


def _not_empty(moments: pl.DataFrame, path: Path) -> pl.DataFrame:
    if moments.is_empty():
        raise XspError(
            "the memory timeline holds no events",
            path=path,
            advice="Name the device that the work ran on: export_memory_timeline(path, device=...)",
        )
    nothing = [pl.lit(None, dtype=kind).alias(name) for name, kind in MOMENTS.items() if name not in moments.columns]
    return moments.with_columns(nothing).select(*MOMENTS)


def _doubts(count: int) -> list[Finding]:
    return [Finding(LedgerKind.UNUSABLE_MEMORY_EVENT, "events of the timeline that are no times and sizes", count)]
