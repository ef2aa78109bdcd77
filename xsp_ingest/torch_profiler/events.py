"""The columns both scanners fill: one row an event of `traceEvents`, in file order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ARGS", "EVENT_COLUMNS", "Document"]

_I = pl.Int64()
_S = pl.String()
_W = pl.Categorical()

ARGS: Mapping[str, tuple[str, ...]] = {
    # column: the keys of `args` that may hold it, in order of preference (spelling changed over the years)
    "correlation": ("correlation",),
    "external_id": ("External id", "external id"),
    "record_function_id": ("Record function id",),
    "device": ("device",),
    "context": ("context",),
    "stream": ("stream",),
    "bytes": ("bytes", "Bytes"),
    "registers": ("registers per thread",),
    "shared_bytes": ("shared memory",),
    "graph_id": ("graph id",),
    "graph_node_id": ("graph node id",),
    "sequence_number": ("Sequence number",),
    "forward_thread_id": ("Fwd thread id",),
    "memory_device_type": ("Device Type",),
    "memory_device_id": ("Device Id",),
    "total_allocated": ("Total Allocated",),
    "total_reserved": ("Total Reserved",),
}
"""Whole-number arguments; a value that is a string of digits counts as the number, anything else is null."""

EVENT_COLUMNS: Mapping[str, pl.DataType] = {
    "ph": _W,  # null where absent or not a string
    "cat": _W,  # null where absent or not a string
    "name": _W,  # "" where absent; a name that is no string is its JSON text
    "ts_ns": _I,  # exact: microseconds as written, times 1000, half to even; null where absent or no finite number
    "dur_ns": _I,  # likewise
    "pid": _I,  # a string of digits, or `stream 7`, counts as its number; else null
    "tid": _I,
    "flow_id": _I,  # the event's `id`
    **dict.fromkeys(ARGS, _I),
    "grid_x": _I,
    "grid_y": _I,
    "grid_z": _I,
    "block_x": _I,
    "block_y": _I,
    "block_z": _I,
    "input_dims": _S,  # `Input Dims` (`Input dims`) as `json.dumps` would write it; null where absent
    "input_types": _S,  # `Input type`, likewise
}
"""Columns of `Document.events`, in this order, with these types."""


@dataclass(frozen=True, slots=True)
class Document:
    """A scanned file: its events, and the other keys of the top-level object as Python values (empty for a list)."""

    events: pl.DataFrame
    head: Mapping[str, object] = field(default_factory=dict)
    not_objects: int = 0  # entries of traceEvents that were no objects
