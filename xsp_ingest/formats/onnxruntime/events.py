"""The events of a profile as columns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import TraceEvent, integer, nanoseconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Profile", "load", "node_of"]

_NS_PER_US = 1000
_SUFFIXES = ("_kernel_time", "_fence_before", "_fence_after")
_SIZES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_NO_SIZES = (None,) * len(_SIZES)
_SCHEMA: Mapping[str, pl.DataType] = {
    "row": pl.Int64(),
    "cat": pl.String(),
    "name": pl.String(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "process_id": pl.Int64(),
    "thread_id": pl.Int64(),
    "node_row": pl.Int64(),  # of a kernel: the event of the node that issued it
    "op_name": pl.String(),
    "provider": pl.String(),
    "node_index": pl.Int64(),
    "shapes": pl.String(),
    "dtypes": pl.String(),
    "held_bytes": pl.Int64(),
    "in_use_bytes": pl.Int64(),
    "taken_bytes": pl.Int64(),
    "stream_id": pl.Int64(),
    "correlation_id": pl.Int64(),
    **dict.fromkeys(_SIZES, pl.Int64()),
}


@dataclass(slots=True)
class Profile:
    """The complete events (`ph` X), and how many entries are none; `not_utf8` stretches had bytes replaced."""

    events: pl.DataFrame
    foreign: int
    not_utf8: int


@dataclass(slots=True)
class _Nodes:
    """The nodes met so far: the last of each name, and the last of all."""

    by_name: dict[str, int] = field(default_factory=dict)
    last: int | None = None
    last_operator: str | None = None


def load(path: Path) -> Profile:
    """The file's events in its order; XspError where it is cut off or no JSON list."""
    seen, nodes = Entries(), _Nodes()
    foreign = count = 0
    frames = [pl.DataFrame(schema=_SCHEMA)]
    for batch in entries(path, TraceEvent, seen):
        complete = [event for event in batch if event.ph == "X"]
        foreign += len(batch) - len(complete)
        rows = [_row(event, count + n, nodes) for n, event in enumerate(complete)]
        frames.append(pl.DataFrame(rows, schema=_SCHEMA, orient="row"))
        count += len(complete)
    return Profile(pl.concat(frames), foreign + seen.foreign, seen.not_utf8)


def node_of(name: str) -> tuple[str, str]:
    """The node's name in an event's name, and which of its events it is: `_kernel_time`, ..., or nothing."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, ""


def _row(event: TraceEvent, row: int, nodes: _Nodes) -> tuple[object, ...]:
    args: Mapping[str, Any] = event.args if isinstance(event.args, dict) else {}
    category, name, operator = text(event.cat), text(event.name) or "", text(args.get("op_name"))
    if category == "Node" and node_of(name)[1] != _SUFFIXES[1]:
        nodes.by_name[node_of(name)[0]] = nodes.last = row
        nodes.last_operator = operator
    shapes, dtypes = _inputs(args.get("input_type_shape"))
    return (
        row,
        category,
        name,
        nanoseconds(event.ts, _NS_PER_US),
        nanoseconds(event.dur, _NS_PER_US),
        integer(event.pid),
        integer(event.tid),
        _issuer(args, nodes) if category == "Kernel" else None,
        operator,
        text(args.get("provider")),
        integer(args.get("node_index")),
        shapes,
        dtypes,
        integer(args.get("mem_arena_held")),
        integer(args.get("mem_bytes_in_use")),
        integer(args.get("mem_in_use_delta")),
        _stream(args.get("stream")),
        integer(args.get("correlation_id")),
        *(_NO_SIZES if category != "Kernel" else (_size(args.get(size)) for size in _SIZES)),
    )


def _issuer(args: Mapping[str, Any], nodes: _Nodes) -> int | None:
    """A kernel stands behind its node in the file, and names it or the node's operator; else nothing ties them."""
    if parent := text(args.get("parent_name")):
        return nodes.by_name.get(node_of(parent)[0])
    operator = text(args.get("op_name"))
    return nodes.last if operator is not None and operator == nodes.last_operator else None


def _inputs(value: object) -> tuple[str | None, str | None]:
    """Shapes and element types of the inputs as JSON, from `[{"float": [4, 3]}, ...]`."""
    return _inputs_of(msgspec.json.encode(value)) if isinstance(value, list) else (None, None)


@lru_cache(maxsize=1 << 12)
def _inputs_of(encoded: bytes) -> tuple[str, str]:
    """The same nodes come in every run, with the same inputs."""
    entries_of: list[Any] = msgspec.json.decode(encoded)
    pairs = [next(iter(entry.items())) for entry in entries_of if isinstance(entry, dict) and entry]
    shapes = [shape if isinstance(shape, list) else [] for _, shape in pairs]
    return json.dumps(shapes), json.dumps([kind for kind, _ in pairs])


def _stream(value: object) -> int | None:
    """CUDA's number of the stream; ROCm gives an address."""
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return integer(int(value, 16))
        except ValueError:
            return None
    return integer(value)


def _size(value: object) -> int | None:
    """Copies have -1 in place of a grid and a block."""
    size = integer(value)
    return size if size is not None and size >= 0 else None
