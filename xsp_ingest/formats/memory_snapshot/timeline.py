"""Reads what `export_memory_timeline` writes: raw events, or sizes by category over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_walk import EACH, Targets, walk
from xsp_ingest.formats.memory_snapshot.moments import MOMENTS, WHAT, column
from xsp_model import Finding, LedgerKind, MemoryKind, XspError
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_events", "read_sizes"]

_MAX = 1 << 52  # bytes; beyond, a number is none
_EVENTS = Targets(WHAT, lists={(): list[int]})
_SIZES = Targets(WHAT, lists={(EACH,): int | list[int]})
_LIST = pl.List(pl.Int64)
_CHANGES = {"time_ns": pl.Int64, "bytes": pl.Int64, "code": pl.Int64}
_CATEGORIES = dict(
    enumerate(
        map(
            str,
            (
                MemoryKind.WEIGHTS,
                MemoryKind.OPTIMIZER_STATE,
                MemoryKind.INPUTS,
                MemoryKind.WORKSPACE,  # temporary
                MemoryKind.ACTIVATIONS,
                MemoryKind.GRADIENTS,
                MemoryKind.GRADIENTS,  # what autograd holds on the way to them
            ),
        )
    )
)
"""The profiler's categories, by their numbers; 7: unknown to it too."""


def read_events(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from raw events: time in ns (-1: before the profile began), action, bytes with their sign, category."""
    unusable = 0
    parts = [pl.DataFrame(schema=_CHANGES)]
    for part in walk(path, _EVENTS):
        sound = [e for e in part.content if len(e) == 4 and abs(e[0]) < LATEST_NS and abs(e[2]) < _MAX]  # noqa: PLR2004
        unusable += len(part.content) - len(sound)
        columns = {"time_ns": column([e[0] for e in sound]), "bytes": column([e[2] for e in sound])}
        parts.append(pl.DataFrame({**columns, "code": column([e[3] for e in sound])}, schema=_CHANGES))
    changes = pl.concat(parts, rechunk=True)
    timed = changes.filter(pl.col("time_ns") >= 0)
    begun = timed["time_ns"].min()
    if not isinstance(begun, int):
        return _not_empty(timed.select("time_ns"), path), _doubts(unusable)
    # A new version of a tensor leaves one category and enters another in one moment: no change in sum.
    blocks = _by_moment(changes.with_columns(pl.col("time_ns").clip(begun)), "time_ns", "code")
    sums = _by_moment(timed, "time_ns")
    before = int(changes.filter(pl.col("time_ns") < 0)["bytes"].sum())
    in_use = sums.select("time_ns", (pl.col("bytes").cum_sum() + before).alias("allocated_bytes"))
    return _moments(in_use, blocks.rename({"code": "category"}), path), _doubts(unusable)


def _by_moment(changes: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """The bytes of each moment in sum, in order of time, without those that cancel out."""
    return changes.group_by(keys).agg(pl.col("bytes").sum()).filter(pl.col("bytes") != 0).sort(keys)


def read_sizes(path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Moments from times in us and, for each, sizes by category."""
    times: list[pl.Series] = [column([])]
    sizes = [pl.Series(dtype=_LIST)]
    for part in walk(path, _SIZES):
        if part.numbers == (0,):
            times.append(column([_inside(entry) for entry in part.content]))
        elif part.numbers == (1,):
            sizes.append(pl.Series([_checked(entry) for entry in part.content], dtype=_LIST))
    all_times, all_sizes = pl.concat(times), pl.concat(sizes)
    count = min(len(all_times), len(all_sizes))
    pairs = pl.DataFrame({"time_ns": all_times[:count] * 1_000, "sizes": all_sizes[:count]}).drop_nulls()
    unusable = max(len(all_times), len(all_sizes)) - pairs.height
    in_use = pairs.select("time_ns", pl.col("sizes").list.sum().alias("allocated_bytes"))
    return _moments(in_use, _changed(pairs), path), _doubts(unusable)


def _changed(pairs: pl.DataFrame) -> pl.DataFrame:
    """From sizes by category, of which the first column is none, the bytes by which each changed, in order of time."""
    last = pl.col("sizes").list.len().cast(pl.Int64) - 1  # a length is unsigned: one less than none would be 2^32
    long = pairs.with_row_index("moment").with_columns(pl.int_ranges(-1, last).alias("code"))
    flat = long.explode("sizes", "code").filter(pl.col("sizes").is_not_null())
    change = pl.col("sizes").diff().over("code", order_by="moment")
    changed = flat.with_columns(change.fill_null(pl.col("sizes")).alias("bytes")).filter(pl.col("bytes") != 0)
    return changed.sort("moment", "code").select("time_ns", "bytes", pl.col("code").alias("category"))


def _moments(in_use: pl.DataFrame, blocks: pl.DataFrame, path: Path) -> pl.DataFrame:
    """What was in use at each time, and then what came and went: two kinds of rows, so that nothing counts twice."""
    named = blocks.with_columns(
        pl.col("category").replace_strict(_CATEGORIES, default=str(MemoryKind.UNKNOWN), return_dtype=pl.String)
    )
    _not_empty(in_use, path)
    return _not_empty(pl.concat([in_use, named], how="diagonal").sort("time_ns", maintain_order=True), path)


def _inside(entry: int | list[int]) -> int | None:
    return entry if isinstance(entry, int) and abs(entry) < LATEST_NS // 1_000 else None


def _checked(entry: int | list[int]) -> list[int] | None:
    return entry if isinstance(entry, list) and all(abs(size) < _MAX for size in entry) else None


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
