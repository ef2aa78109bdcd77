"""Reads `torch.cuda.memory._snapshot()` written as JSON: what is in use, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from xsp_ingest.files.json_window import EACH, Targets, walk
from xsp_ingest.formats.memory_snapshot.frames import lines_of
from xsp_ingest.formats.memory_snapshot.moments import MOMENTS, WHAT
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Snapshot", "read_snapshot"]

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
_CHANGES = {
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
        usable = [entry for entry in part.content if _is_integer(entry.time_us) and _sized(entry.size)]
        unusable += len(part.content) - len(usable)
        failed += sum(entry.action == "oom" for entry in usable)
        changes.setdefault(part.numbers[0], []).append(_changes(usable, keep_private=keep_private))
    parts = [_moments(device, pl.concat(frames), segments) for device, frames in sorted(changes.items())]
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
    return Snapshot(moments, _largest_free(segments), findings)


def _largest_free(segments: list[_Segment]) -> dict[int, int]:
    """By device; 0 where its segments are full, no entry where their blocks are not listed."""
    largest: dict[int, int] = {}
    for segment in segments:
        for block in segment.blocks:
            size = block.size if block.state == _FREE and _sized(block.size) else 0
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
    return pl.DataFrame(rows, schema=_CHANGES, orient="row")


def _moments(device: int, changes: pl.DataFrame, every: list[_Segment]) -> pl.DataFrame:
    segments = [s for s in every if s.device == device and _sized(s.total_size) and _sized(s.active_size)]
    allocated, reserved = changes["allocated"].to_numpy(), changes["reserved"].to_numpy()
    return pl.DataFrame(
        {
            "time_ns": changes["time_ns"],
            "device_id": pl.repeat(device, changes.height, dtype=pl.Int64, eager=True),
            "bytes": allocated,
            "allocated_bytes": _counted_back(allocated, sum(s.active_size for s in segments)),
            "reserved_bytes": _counted_back(reserved, sum(s.total_size for s in segments)),
            "address": changes["address"],
            "category": pl.repeat(None, changes.height, dtype=pl.String, eager=True),
            "source_lines": changes["source_lines"],
        },
        schema=dict(MOMENTS),
    )


def _counted_back(change: np.ndarray[Any, np.dtype[np.int64]], last: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What was in use after each change, when `last` was after all of them."""
    in_use: np.ndarray[Any, np.dtype[np.int64]] = last - (change.sum() - np.cumsum(change))
    return in_use


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 52


def _is_address(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63


def _sized(value: object) -> bool:
    return _is_integer(value) and isinstance(value, int) and 0 <= value < _MAX_BYTES
