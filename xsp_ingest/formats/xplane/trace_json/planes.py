"""The events of a trace JSON as the planes they were made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.json_window import Entries
from xsp_ingest.files.values import integer, text
from xsp_ingest.formats.xplane.plane import AMOUNTS, NUMBERS, READ, TEXTS, Plane
from xsp_ingest.trace_events import read_events

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.trace_events import TraceEvent

__all__ = ["PlaneFile", "read_planes"]

_MAX_AT_ONCE = 1 << 14
_ALWAYS = ("line", "metadata_id", "start_ns", "duration_ns")
_COLUMNS = (*_ALWAYS, *NUMBERS, *AMOUNTS, *TEXTS)
_TYPES = {
    name: pl.Float64() if name in AMOUNTS else pl.Categorical() if name in TEXTS else pl.Int64() for name in _COLUMNS
}


@dataclass(frozen=True, slots=True)
class PlaneFile:
    """The planes of a file, how many events it holds, and what was odd about their list."""

    planes: Sequence[Plane]
    events: int
    seen: Entries


@dataclass(slots=True)
class _Collected:
    """Events of one plane in columns, those read last as Python's values, and what they are called."""

    name: str = ""
    columns: dict[str, list[object]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    packed: list[pl.DataFrame] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    frames: int = 0

    def add(self, event: TraceEvent, start_ns: int) -> None:
        """One event; the Python tracer's frames are only counted."""
        name = text(event.name) or ""
        if name.startswith("$"):
            self.frames += 1
            return
        args = event.arguments
        row: dict[str, object] = {
            "line": integer(event.tid) or 0,
            "metadata_id": self.names.setdefault(name, len(self.names)),
            "start_ns": start_ns,
            "duration_ns": event.duration_ns or 0,
        }
        row |= {key: _stat(key, value) for key, value in args.items() if key in READ}
        for column, values in self.columns.items():
            values.append(row.get(column))
        if len(self.columns["line"]) >= _MAX_AT_ONCE:
            self.pack()

    def pack(self) -> None:
        """Puts what was read last into compact columns, those that hold something: Python's values take much room."""
        rows = pl.DataFrame(self.columns, schema=_TYPES)
        self.packed.append(rows.select(c for c in rows if c.name in _ALWAYS or c.null_count() < rows.height))
        for values in self.columns.values():
            values.clear()


def _stat(name: str, value: object) -> object:
    """A statistic's value, which the file holds as text."""
    if name in TEXTS:
        return text(value)
    number = integer(value.lstrip("$") if isinstance(value, str) else value)
    return float(number) if name in AMOUNTS and number is not None else number


def read_planes(path: Path) -> PlaneFile:
    """The planes that the file's processes were; XspError where it is no JSON or cut off."""
    seen = Entries()
    collected: dict[int, _Collected] = {}
    count = 0
    for some in read_events(path, seen):
        for event in some:
            process = integer(event.pid)
            if process is None:
                seen.foreign += event.ph is not None  # the list ends in an empty object
                continue
            plane = collected.setdefault(process, _Collected())
            if event.ph == "M":
                _name(plane, event)
            elif event.ph == "X":
                count += 1
                start_ns = event.start_ns
                if start_ns is None:
                    seen.foreign += 1
                else:
                    plane.add(event, start_ns)
    return PlaneFile([_plane(each) for each in collected.values() if each.name], count, seen)


def _name(plane: _Collected, event: TraceEvent) -> None:
    called = text(event.arguments.get("name"))
    if called and event.name == "process_name":
        plane.name = called
    elif called and event.name == "thread_name":
        plane.lines[integer(event.tid) or 0] = called


def _plane(collected: _Collected) -> Plane:
    collected.pack()
    events = pl.concat(collected.packed, how="diagonal")
    lines = collected.lines | {line: "" for line in events["line"].unique().sort() if line not in collected.lines}
    names = list(collected.names)
    return Plane(
        collected.name,
        {},
        pl.DataFrame(
            {"metadata_id": list(range(len(names))), "event_name": names, "display_name": [""] * len(names)},
            schema={"metadata_id": pl.Int64, "event_name": pl.String, "display_name": pl.String},
        ),
        pl.DataFrame(
            {
                "line": list(lines),
                "line_id": list(lines),
                "timestamp_ns": [0] * len(lines),
                "line_name": list(lines.values()),
            },
            schema={"line": pl.Int64, "line_id": pl.Int64, "timestamp_ns": pl.Int64, "line_name": pl.String},
        ),
        events,
        {},
        collected.frames,
        0,
    )
