"""Writes the run of `synth_rocprof` as rocprofv3's SQLite database, in either of its layouts.

Tables and columns are those of `rocpd_tables.sql` (rocprofiler-sdk, schema 3), as far as a reader needs them; which
value goes where is that of `generateRocpd.cpp`: the internal correlation id stands in `stack_id`, the message of a
marker in its event's `extdata`, and a call of no duration in `rocpd_sample`.
"""

# ruff: noqa: S608 (names of tables and columns are literals)
from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.helpers.synth_rocprof import COPY_BYTES, PROCESS, STREAM, agent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.helpers.synth_rocprof import RocprofRun

__all__ = ["GUID", "rocpd"]

GUID = "0199c3a5_77a2_7c1e_9d0b_3f1a5be2c0de"
_NODE = 77
_INFO: Mapping[str, Sequence[str]] = {
    "metadata": ("tag TEXT NOT NULL", "value TEXT NOT NULL"),
    "string": ("string TEXT NOT NULL UNIQUE ON CONFLICT ABORT",),
    "info_node": ("hash BIGINT", "machine_id TEXT", "hostname TEXT"),
    "info_process": ("nid INTEGER", "ppid INTEGER", "pid INTEGER NOT NULL", "command TEXT"),
    "info_thread": ("nid INTEGER", "pid INTEGER NOT NULL", "tid INTEGER NOT NULL", "name TEXT"),
    "info_agent": (
        *("nid INTEGER", "pid INTEGER", "type TEXT CHECK (type IN ('CPU', 'GPU'))", "absolute_index INTEGER"),
        *("logical_index INTEGER", "type_index INTEGER", "name TEXT", "product_name TEXT", "extdata JSONB"),
    ),
    "info_stream": ("nid INTEGER", "pid INTEGER", "name TEXT"),
    "info_pmc": ("nid INTEGER", "pid INTEGER", "agent_id INTEGER", "name TEXT NOT NULL", "symbol TEXT NOT NULL"),
    "info_kernel_symbol": (
        *("nid INTEGER", "pid INTEGER", "code_object_id INTEGER", "kernel_name TEXT", "display_name TEXT"),
        *("group_segment_size INTEGER", "sgpr_count INTEGER", "arch_vgpr_count INTEGER", "accum_vgpr_count INTEGER"),
    ),
    "event": (
        *("category_id INTEGER", "stack_id INTEGER", "parent_stack_id INTEGER", "correlation_id INTEGER"),
        'extdata JSONB DEFAULT "{}" NOT NULL',
    ),
    "pmc_event": ("event_id INTEGER", "pmc_id INTEGER NOT NULL", "value REAL DEFAULT 0.0"),
}
_DISPATCH = (
    *("kernel_id INTEGER NOT NULL", "dispatch_id INTEGER NOT NULL", "group_segment_size INTEGER"),
    *(f"{what}_size_{axis} INTEGER NOT NULL" for what in ("workgroup", "grid") for axis in "xyz"),
)
_COPY = ("name_id INTEGER NOT NULL", "dst_agent_id INTEGER", "src_agent_id INTEGER", "size INTEGER NOT NULL")
_TIMES = ("start BIGINT NOT NULL", '"end" BIGINT NOT NULL')
_WHERE = ("nid INTEGER NOT NULL", "pid INTEGER NOT NULL", "tid INTEGER")
_BY_COLUMNS: Mapping[str, Sequence[str]] = {  # ROCm 7.0: who and when stand in the row itself
    "track": ("nid INTEGER", "pid INTEGER", "tid INTEGER", "name_id INTEGER"),
    "region": (*_WHERE, *_TIMES, "name_id INTEGER NOT NULL", "event_id INTEGER"),
    "sample": ("track_id INTEGER NOT NULL", "timestamp BIGINT NOT NULL", "event_id INTEGER"),
    "kernel_dispatch": (
        *(*_WHERE, "agent_id INTEGER NOT NULL", "queue_id INTEGER", "stream_id INTEGER", *_TIMES, *_DISPATCH),
        "event_id INTEGER",
    ),
    "memory_copy": (*_WHERE, *_TIMES, *_COPY, "stream_id INTEGER", "event_id INTEGER"),
}
_SPAN = ("track_id INTEGER NOT NULL", "start_id INTEGER NOT NULL", "end_id INTEGER NOT NULL", "event_id INTEGER")
_BY_TRACKS: Mapping[str, Sequence[str]] = {  # later: in tables of tracks and of times
    "track": (
        *("nid INTEGER", "pid INTEGER", "tid INTEGER", "agent_id INTEGER", "queue_id INTEGER", "stream_id INTEGER"),
        "name_id INTEGER",
    ),
    "timestamp": ("value BIGINT NOT NULL", "phase INTEGER", "track_id INTEGER"),
    "region": (*_SPAN, "name_id INTEGER NOT NULL"),
    "sample": ("track_id INTEGER", "name_id INTEGER", "timestamp_id INTEGER", "event_id INTEGER"),
    "kernel_dispatch": (*_SPAN, *_DISPATCH),
    "memory_copy": (*_SPAN, *_COPY),
}


@dataclass
class _Base:
    connection: sqlite3.Connection
    guid: str
    by_tracks: bool
    ids: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def create(self) -> None:
        for table, columns in {**_INFO, **(_BY_TRACKS if self.by_tracks else _BY_COLUMNS)}.items():
            row = ", ".join(("id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "guid TEXT", *columns))
            self.connection.execute(f'CREATE TABLE "rocpd_{table}_{self.guid}" ({row})')
            self.connection.execute(
                f'CREATE VIEW IF NOT EXISTS "rocpd_{table}" AS SELECT * FROM "rocpd_{table}_{self.guid}"'
            )
        for tag, value in (("schema_version", "3"), ("uuid", f"_{self.guid}"), ("guid", self.guid.replace("_", "-"))):
            self.add("metadata", tag=tag, value=value)

    def add(self, table: str, **values: object) -> int:
        """A row; its id, the next one unless it is row."""
        number = values.pop("id", None) or self.ids.get(table, 0) + 1
        assert isinstance(number, int)
        self.ids[table] = number
        row = {"id": number, "guid": self.guid.replace("_", "-"), **values}
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" * len(row))
        self.connection.execute(
            f'INSERT INTO "rocpd_{table}_{self.guid}" ({names}) VALUES ({marks})', tuple(row.values())
        )
        return number

    def text(self, text: str) -> int:
        if text not in self.texts:
            self.texts[text] = self.add("string", string=text)
        return self.texts[text]

    def event(self, category: str, correlation: int, message: str | None = None) -> int:
        extdata = "{}" if message is None else json.dumps({"message": message})
        return self.add(
            "event", category_id=self.text(category), stack_id=correlation, correlation_id=0, extdata=extdata
        )

    def where(self, **device: int) -> dict[str, object]:
        """Process, thread, and of device work agent and stream: in the row, or in a track."""
        track = {"nid": _NODE, "pid": PROCESS, "tid": PROCESS, **device}
        if not self.by_tracks:
            return dict(track)
        key = json.dumps(track)
        if key not in self.ids:
            self.ids[key] = self.add("track", **track)
        return {"track_id": self.ids[key]}

    def time(self, start: int, end: int) -> dict[str, object]:
        if not self.by_tracks:
            return {"start": start, "end": end}
        return {"start_id": self.add("timestamp", value=start), "end_id": self.add("timestamp", value=end)}


def rocpd(run: RocprofRun, *, by_tracks: bool = False, guids: Sequence[str] = (GUID,)) -> bytes:
    """The database; with several GUIDs the same run several times, as a merged one has."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        for guid in guids:
            base = _Base(connection, guid, by_tracks)
            base.create()
            _write(base, run)
        connection.commit()
        return connection.serialize()


def _write(base: _Base, run: RocprofRun) -> None:
    base.text("")
    base.add("info_node", id=_NODE, hash=1, machine_id="made-up", hostname="made-up")
    base.add("info_process", id=PROCESS, nid=_NODE, ppid=1, pid=PROCESS, command="made-up")
    base.add("info_thread", id=PROCESS, nid=_NODE, pid=PROCESS, tid=PROCESS)
    base.add("info_stream", id=STREAM, nid=_NODE, pid=PROCESS, name="Stream 2")
    for number in range(-1, 2):
        _agent(base, number)
    for number, name in enumerate(run.counter_names, 1):
        base.add("info_pmc", id=(1 << 40) + number, nid=_NODE, pid=PROCESS, agent_id=1, name=name, symbol=name)
    for start, end, name, correlation, domain in run.calls:
        _call(base, (start, end), name, correlation, domain)
    _kernels(base, run)
    for start, end, direction, correlation in run.copies:
        base.add(
            "memory_copy",
            **base.where(stream_id=STREAM),
            **base.time(start, end),
            name_id=base.text(f"MEMORY_COPY_{direction}"),
            dst_agent_id=10 * direction.endswith("DEVICE") or 2,
            src_agent_id=10 * direction.startswith("DEVICE") or 2,
            size=COPY_BYTES,
            event_id=base.event("MEMORY_COPY", correlation),
        )


def _agent(base: _Base, number: int) -> None:
    """Nodes are 2 (the CPU), 10 and 11: of a machine of which the container sees a part."""
    node = 10 + number if number >= 0 else 2
    description = agent(number)
    base.add(
        "info_agent",
        id=node,
        nid=_NODE,
        pid=PROCESS,
        type="GPU" if number >= 0 else "CPU",
        absolute_index=node,
        logical_index=number + 1,
        type_index=max(number, 0),
        name=description["name"],
        product_name=description["product_name"],
        extdata=json.dumps({**description, "node_id": node}),
    )


def _call(base: _Base, times: tuple[int, int], name: str, correlation: int, domain: str) -> None:
    is_marker = domain.startswith("MARKER")
    event = base.event(domain, correlation, name if is_marker else None)
    named = base.text("roctxThreadRangeA" if is_marker else name)
    if times[0] != times[1]:
        base.add("region", **base.where(), **base.time(*times), name_id=named, event_id=event)
    elif base.by_tracks:
        moment = base.add("timestamp", value=times[0])
        base.add("sample", **base.where(), timestamp_id=moment, name_id=named, event_id=event)
    else:
        track = base.add("track", nid=_NODE, pid=PROCESS, tid=PROCESS, name_id=base.text(domain))
        base.add("sample", track_id=track, timestamp=times[0], event_id=event)


def _kernels(base: _Base, run: RocprofRun) -> None:
    names = list(dict.fromkeys(name for _, _, name, _, _ in run.kernels))
    for number, name in enumerate(names, 1):
        shown = name.removesuffix(".kd")
        base.add(
            "info_kernel_symbol", id=number, nid=_NODE, pid=PROCESS, kernel_name=name, display_name=shown,
            arch_vgpr_count=32,
        )  # fmt: skip
    for number, (start, end, name, correlation, gpu) in enumerate(run.kernels, 1):
        event = base.event("KERNEL_DISPATCH", correlation)
        base.add(
            "kernel_dispatch",
            **base.where(agent_id=10 + gpu, queue_id=1, stream_id=STREAM),
            **base.time(start, end),
            kernel_id=names.index(name) + 1,
            dispatch_id=number,
            group_segment_size=1_024,
            **{f"workgroup_size_{axis}": size for axis, size in zip("xyz", (256, 1, 1), strict=True)},
            **{f"grid_size_{axis}": size for axis, size in zip("xyz", (1_000, 2, 1), strict=True)},
            event_id=event,
        )
        for counter, instances in run.counts.get(number, {}).items():
            pmc = (1 << 40) + run.counter_names.index(counter) + 1
            for value in instances:
                base.add("pmc_event", event_id=event, pmc_id=pmc, value=value)
