"""The JSON of a timeline as typed values, and as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_window import Entries, entries
from xsp_ingest.files.values import TraceEvent, integer, nanoseconds, text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["events_of", "load"]

_NS_PER_US = 1000


def load(path: Path) -> tuple[pl.DataFrame, Entries]:
    """The events as columns, and what was odd about their list; XspError where the file is no timeline."""
    seen = Entries()
    batches = entries(path, TraceEvent, seen, key=b"traceEvents")
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *(_frame(some) for some in batches)]), seen


def _frame(events: list[TraceEvent]) -> pl.DataFrame:
    return pl.DataFrame([_row(event) for event in events], schema=_SCHEMA, orient="row")


def events_of(events: pl.DataFrame, ph: str) -> pl.DataFrame:
    """The events of a phase: pid, tid, id, times in ns, `cat`, and `name` with the texts of `args`."""
    return events.filter(pl.col("ph") == ph).drop("ph")


_SCHEMA = {
    "ph": pl.String(),
    "cat": pl.String(),
    "name": pl.String(),
    "pid": pl.Int64(),
    "tid": pl.Int64(),
    "id": pl.Int64(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "node": pl.String(),  # args.name
    "op": pl.String(),
    "kernel": pl.String(),
    "inputs": pl.List(pl.String()),
    "value": pl.Int64(),  # a counter's
    "snapshot": pl.String(),
}


def _row(event: TraceEvent) -> tuple[object, ...]:
    args = event.args if isinstance(event.args, dict) else {}
    name = text(event.name) or ""
    snapshot = args.get("snapshot")
    described = snapshot.get("tensor_description") if isinstance(snapshot, dict) else None
    inputs = [tensor for n in range(len(args)) if (tensor := text(args.get(f"input{n}"))) is not None]
    return (
        text(event.ph),
        text(event.cat),
        name,
        integer(event.pid),
        integer(event.tid),
        integer(event.id),
        nanoseconds(event.ts, _NS_PER_US),
        nanoseconds(event.dur, _NS_PER_US),
        text(args.get("name")),
        text(args.get("op")),
        text(args.get("kernel")),
        inputs,
        integer(args.get(name)),
        text(described),
    )
