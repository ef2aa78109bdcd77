"""A Nsight Systems SQLite export, read with `sqlite3`: device work per device, calls, copies."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tests.answers.by_hand.intervals import clipped, length

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Export", "Work", "read"]

_PREFIX = "CUPTI_ACTIVITY_KIND_"


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, copy or memset; times in ns."""

    kind: str
    name: str
    start: int
    end: int
    device: int
    stream: int
    process: int
    correlation: int
    bytes: int | None
    copy_kind: int | None
    source_kind: int | None
    target_kind: int | None

    @property
    def interval(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def duration(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    start: int
    end: int
    thread: int
    correlation: int


@dataclass(frozen=True)
class Export:
    device: list[Work]
    calls: list[Call]
    ranges: list[tuple[str, int, int, int]]

    def of_device(self, device: int) -> list[Work]:
        return [work for work in self.device if work.device == device]

    def devices(self) -> list[int]:
        return sorted({work.device for work in self.device})

    def first_to_last(self) -> tuple[int, int]:
        return min(work.start for work in self.device), max(work.end for work in self.device)

    def busy(self, device: int | None = None, window: tuple[int, int] | None = None) -> int:
        """The union over all streams, of one device or of all as one."""
        intervals = [work.interval for work in self.device if device in (None, work.device)]
        return length(clipped(intervals, window) if window else intervals)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f'pragma table_info("{table}")')}


def _rows(base: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    cursor = base.execute(f'select * from "{table}"')  # noqa: S608 (the file's own names)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


@lru_cache(maxsize=2)
def read(path: Path) -> Export:
    """Device work in order of start, runtime calls, NVTX ranges `(text, start, end, thread)`."""
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    base.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables = {row[0] for row in base.execute("select name from sqlite_master where type='table'")}
    texts = dict(base.execute("select id, value from StringIds")) if "StringIds" in tables else {}
    device = [
        _work(kind.lower(), row, texts)
        for kind in ("KERNEL", "MEMCPY", "MEMSET")
        if _PREFIX + kind in tables
        for row in _rows(base, _PREFIX + kind)
    ]
    calls = [
        Call(texts[row["nameId"]], row["start"], row["end"], row["globalTid"], row["correlationId"])
        for row in (_rows(base, _PREFIX + "RUNTIME") if _PREFIX + "RUNTIME" in tables else [])
    ]
    ranges = [
        (row["text"] or texts.get(row.get("textId"), ""), row["start"], row["end"], row["globalTid"])
        for row in (_rows(base, "NVTX_EVENTS") if "NVTX_EVENTS" in tables else [])
        if row["end"] is not None and row["eventType"] in (59, 60, 70, 71)
    ]
    base.close()
    return Export(sorted(device, key=lambda work: work.start), sorted(calls, key=lambda call: call.start), ranges)


def _work(kind: str, row: dict[str, Any], texts: dict[int, str]) -> Work:
    return Work(
        kind,
        texts.get(row.get("demangledName", -1), kind),
        row["start"],
        row["end"],
        row["deviceId"],
        row["streamId"],
        row["globalPid"] or 0,
        row["correlationId"],
        row.get("bytes"),
        row.get("copyKind"),
        row.get("srcKind"),
        row.get("dstKind"),
    )
