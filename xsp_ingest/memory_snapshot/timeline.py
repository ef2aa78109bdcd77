"""Reads what `export_memory_timeline` writes: raw events, or sizes by category over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.memory_snapshot.moments import MOMENTS, column, decoded
from xsp_model import Finding, XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_events", "read_sizes"]

_MOST = 1 << 52  # us and bytes; beyond, a number is none


def read_events(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from raw events: time in ns (-1: before the profile began), action, bytes with their sign, category."""
    events = decoded(path, list[list[int]])
    sound = [e for e in events if len(e) == 4 and abs(e[0]) < _MOST * 1_000 and abs(e[2]) < _MOST]  # noqa: PLR2004
    before = sum(e[2] for e in sound if e[0] < 0)
    timed = pl.DataFrame(
        {"time_ns": column([e[0] for e in sound if e[0] >= 0]), "bytes": column([e[2] for e in sound if e[0] >= 0])}
    )
    # A new version of a tensor leaves one category and enters another in one moment: no change in sum.
    moments = timed.group_by("time_ns").agg(pl.col("bytes").sum()).sort("time_ns").filter(pl.col("bytes") != 0)
    moments = moments.with_columns((pl.col("bytes").cum_sum() + before).alias("allocated_bytes"))
    return _known(moments, path), _doubts(len(events) - len(sound))


def read_sizes(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from times in us and, for each, sizes by category."""
    times, sizes = decoded(path, tuple[list[int], list[list[int]]])
    pairs = [
        (time * 1_000, sum(size))
        for time, size in zip(times, sizes, strict=False)
        if abs(time) < _MOST and all(abs(each) < _MOST for each in size)
    ]
    moments = pl.DataFrame({"time_ns": column([t for t, _ in pairs]), "allocated_bytes": column([s for _, s in pairs])})
    moments = moments.with_columns(pl.col("allocated_bytes").diff().alias("bytes"))
    return _known(moments, path), _doubts(max(len(times), len(sizes)) - len(pairs))


def _known(moments: pl.DataFrame, path: Path) -> pl.DataFrame:
    if moments.is_empty():
        raise XspError(
            "the memory timeline holds no events",
            path=path,
            advice="Name the device that the work ran on: export_memory_timeline(path, device=...)",
        )
    nothing = [pl.lit(None, dtype=kind).alias(name) for name, kind in MOMENTS.items() if name not in moments.columns]
    return moments.with_columns(nothing).select(*MOMENTS)


def _doubts(count: int) -> list[Finding]:
    return [Finding("unusable_memory_event", "events of the timeline that are no times and sizes", count)]
