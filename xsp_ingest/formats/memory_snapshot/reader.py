"""Reads PyTorch's records of memory into the moments at which memory in use changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from xsp_ingest.files.json_window import EACH, Targets, walk
from xsp_ingest.files.values import int64
from xsp_model import Finding, LedgerKind, MemoryKind, XspError
from xsp_model.columns.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Snapshot", "read_events", "read_sizes", "read_snapshot"]

WHAT = "the memory record"
"""What complaints call the file."""
MOMENTS: Mapping[str, pl.DataType] = {
    "time_ns": pl.Int64(),  # Unix time
    "device_id": pl.Int64(),
    "bytes": pl.Int64(),
    "allocated_bytes": pl.Int64(),
    "reserved_bytes": pl.Int64(),
    "address": pl.Int64(),
    "category": pl.String(),
    "source_lines": pl.String(),
}


def column(values: Sequence[int | None]) -> pl.Series:
    """Integers; those that 64 bits do not hold are unknown."""
    return pl.Series([int64(value) for value in values], dtype=pl.Int64)


# The lines of Python in the stack of an allocation, as a snapshot keeps it.

_MAX_LINES = 3
_SEPARATOR = "; "
_FRAMEWORK = ("/torch/", "<")  # of paths: PyTorch's own files, and code without a file


def lines_of(frames: object, *, keep_private: bool) -> str | None:
    """The user's innermost lines as `file:line function`, innermost first; null where there are none."""
    if not isinstance(frames, list):
        return None
    lines = [line for frame in frames if (line := _line(frame, keep_private=keep_private))]
    return _SEPARATOR.join(lines[:_MAX_LINES]) or None


def _line(frame: object, *, keep_private: bool) -> str | None:
    """Frames of C++ have no Python file, and those of PyTorch do not tell who asked."""
    if not isinstance(frame, dict):
        return None
    path, line, function = (frame.get(key) for key in ("filename", "line", "name"))
    if not isinstance(path, str) or not isinstance(line, int) or not isinstance(function, str):
        return None
    path = path.replace("\\", "/")
    if not path.endswith(".py") or any(mark in path for mark in _FRAMEWORK):
        return None
    return f"{path if keep_private else PurePosixPath(path).name}:{line} {function}"


# Reads `torch.cuda.memory._snapshot()` written as JSON: what is in use, and how it came about.

_ALLOCATED: Mapping[str, int] = {"alloc": 1, "free_completed": -1}
_RESERVED: Mapping[str, int] = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_MAX_BYTES = 1 << 50  # of a device's memory; beyond, a size is none


class _Block(msgspec.Struct, frozen=True):
    size: Any = 0
    state: str = ""


class _Segment(msgspec.Struct, frozen=True):
    device: int = 0
    total_size: int = 0
    active_size: int = 0
    blocks: list[_Block] = []


class _Entry(msgspec.Struct, frozen=True):
    action: str = ""
    addr: Any = None
    size: Any = 0
    time_us: Any = None
    frames: Any = None


_TRACES = ("device_traces", EACH)
_TARGETS = Targets(WHAT, lists={("segments",): _Segment, _TRACES: _Entry})
_ENTRY_COLUMNS = {
    "time_ns": pl.Int64,
    "allocated": pl.Int64,
    "reserved": pl.Int64,
    "address": pl.Int64,
    "source_lines": pl.String,
}
_FREE = "inactive"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`moments` of all devices; `free` has for some devices the size of the largest free block at the end."""

    moments: pl.DataFrame
    free: Mapping[int, int]
    findings: list[Finding]


def read_snapshot(path: Path, *, keep_private: bool = False) -> Snapshot:
    """What a snapshot holds; its history leads up to the state at its end, from which it is counted back."""
    segments: list[_Segment] = []
    changes: dict[int, list[pl.DataFrame]] = {}
    unusable = failed = 0
    for part in walk(path, _TARGETS):
        if part.location != _TRACES:
            segments += part.content
            continue
        usable = [e for e in part.content if _is_integer(e.time_us, LATEST_NS // 1_000) and _is_size(e.size)]
        unusable += len(part.content) - len(usable)
        failed += sum(entry.action == "oom" for entry in usable)
        changes.setdefault(part.numbers[0], []).append(_changes(usable, keep_private=keep_private))
    parts = [_moments_of_device(device, pl.concat(frames), segments) for device, frames in sorted(changes.items())]
    moments = pl.concat(parts or [pl.DataFrame(schema=dict(MOMENTS))])
    if moments.is_empty():
        raise XspError(
            "the memory snapshot holds no history with times",
            path=path,
            advice="Call torch.cuda.memory._record_memory_history() before the work, and use torch 2.2 or newer",
        )
    findings = [
        Finding(LedgerKind.UNUSABLE_MEMORY_EVENT, "events of the allocator without a time or a size", unusable),
        Finding(LedgerKind.OUT_OF_MEMORY, count=failed),
    ]
    return Snapshot(moments, _largest_free([s for s in segments if _is_integer(s.device)]), findings)


def _largest_free(segments: list[_Segment]) -> dict[int, int]:
    """By device; 0 where its segments are full, no entry where their blocks are not listed."""
    largest: dict[int, int] = {}
    for segment in segments:
        for block in segment.blocks:
            size = block.size if block.state == _FREE and _is_size(block.size) else 0
            largest[segment.device] = max(size, largest.get(segment.device, 0))
    return dict(sorted(largest.items()))


def _changes(entries: list[_Entry], *, keep_private: bool) -> pl.DataFrame:
    """Times, and by how much the entries changed what was allocated and reserved; those that changed neither go."""
    rows = [
        (
            entry.time_us * 1_000,
            entry.size * _ALLOCATED.get(entry.action, 0),
            entry.size * _RESERVED.get(entry.action, 0),
            entry.addr if entry.action in _ALLOCATED and _is_address(entry.addr) else None,
            lines_of(entry.frames, keep_private=keep_private) if entry.action == "alloc" else None,
        )
        for entry in entries
        if entry.action in _ALLOCATED or entry.action in _RESERVED
    ]
    return pl.DataFrame(rows, schema=_ENTRY_COLUMNS, orient="row")


def _moments_of_device(device: int, changes: pl.DataFrame, every: list[_Segment]) -> pl.DataFrame:
    segments = [s for s in every if s.device == device and _is_size(s.total_size) and _is_size(s.active_size)]
    allocated, reserved = changes["allocated"].to_numpy(), changes["reserved"].to_numpy()
    return pl.DataFrame(
        {
            "time_ns": changes["time_ns"],
            "device_id": pl.repeat(device, changes.height, dtype=pl.Int64, eager=True),
            "bytes": allocated,
            "allocated_bytes": _in_use_after_each(allocated, sum(s.active_size for s in segments)),
            "reserved_bytes": _in_use_after_each(reserved, sum(s.total_size for s in segments)),
            "address": changes["address"],
            "category": pl.repeat(None, changes.height, dtype=pl.String, eager=True),
            "source_lines": changes["source_lines"],
        },
        schema=dict(MOMENTS),
    )


def _in_use_after_each(change: np.ndarray[Any, np.dtype[np.int64]], last: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What was in use after each change, when `last` was after all of them."""
    in_use: np.ndarray[Any, np.dtype[np.int64]] = last - (change.sum() - np.cumsum(change))
    return in_use


def _is_integer(value: object, limit: int = 1 << 52) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < limit


def _is_address(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63


def _is_size(value: object) -> bool:
    return _is_integer(value) and isinstance(value, int) and 0 <= value < _MAX_BYTES


# Reads what `export_memory_timeline` writes: raw events, or sizes by category over time.

_MAX = 1 << 52  # bytes; beyond, a number is none
_EVENTS = Targets(WHAT, lists={(): list[int]})
_SIZES = Targets(WHAT, lists={(EACH,): int | list[int]})
_LIST = pl.List(pl.Int64)
_EVENT_COLUMNS = {"time_ns": pl.Int64, "bytes": pl.Int64, "code": pl.Int64}
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
    parts = [pl.DataFrame(schema=_EVENT_COLUMNS)]
    for part in walk(path, _EVENTS):
        sound = [e for e in part.content if len(e) == 4 and abs(e[0]) < LATEST_NS and abs(e[2]) < _MAX]  # noqa: PLR2004
        unusable += len(part.content) - len(sound)
        columns = {"time_ns": column([e[0] for e in sound]), "bytes": column([e[2] for e in sound])}
        parts.append(pl.DataFrame({**columns, "code": column([e[3] for e in sound])}, schema=_EVENT_COLUMNS))
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
    return _moments_of_timeline(in_use, blocks.rename({"code": "category"}), path), _doubts(unusable)


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
            sizes.append(pl.Series([_sizes_inside(entry) for entry in part.content], dtype=_LIST))
    all_times, all_sizes = pl.concat(times), pl.concat(sizes)
    count = min(len(all_times), len(all_sizes))
    pairs = pl.DataFrame({"time_ns": all_times[:count] * 1_000, "sizes": all_sizes[:count]}).drop_nulls()
    unusable = max(len(all_times), len(all_sizes)) - pairs.height
    in_use = pairs.select("time_ns", pl.col("sizes").list.sum().alias("allocated_bytes"))
    return _moments_of_timeline(in_use, _changes_by_category(pairs), path), _doubts(unusable)


def _changes_by_category(pairs: pl.DataFrame) -> pl.DataFrame:
    """From sizes by category, of which the first column is none, the bytes by which each changed, in order of time."""
    last = pl.col("sizes").list.len().cast(pl.Int64) - 1  # a length is unsigned: one less than none would be 2^32
    long = pairs.with_row_index("moment").with_columns(pl.int_ranges(-1, last).alias("code"))
    flat = long.explode("sizes", "code").filter(pl.col("sizes").is_not_null())
    change = pl.col("sizes").diff().over("code", order_by="moment")
    changed = flat.with_columns(change.fill_null(pl.col("sizes")).alias("bytes")).filter(pl.col("bytes") != 0)
    return changed.sort("moment", "code").select("time_ns", "bytes", pl.col("code").alias("category"))


def _moments_of_timeline(in_use: pl.DataFrame, blocks: pl.DataFrame, path: Path) -> pl.DataFrame:
    """What was in use at each time, and then what came and went: two kinds of rows, so that nothing counts twice."""
    named = blocks.with_columns(
        pl.col("category").replace_strict(_CATEGORIES, default=str(MemoryKind.UNKNOWN), return_dtype=pl.String)
    )
    _not_empty(in_use, path)
    return _not_empty(pl.concat([in_use, named], how="diagonal").sort("time_ns", maintain_order=True), path)


def _inside(entry: int | list[int]) -> int | None:
    return entry if isinstance(entry, int) and abs(entry) < LATEST_NS // 1_000 else None


def _sizes_inside(entry: int | list[int]) -> list[int] | None:
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
