"""The same events in another order: copies of JSON traces, SQLite databases and XPlane profiles."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["shuffled"]

_PRIME = 7919


def shuffled(source: Path, folder: Path, seed: int) -> Path:
    """A copy in the folder, of the same name; seed 0 turns the events around."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / source.name
    if source.suffix == ".sqlite":
        _shuffle_database(shutil.copyfile(source, copy), seed)
    elif source.suffix == ".pb":
        copy.write_bytes(_profile(source.read_bytes(), seed))
    else:
        content = source.read_bytes()
        is_gzip = source.suffix == ".gz"
        document = json.loads(gzip.decompress(content) if is_gzip else content)
        for events in _lists(document):
            _mix(events, seed)
        text = json.dumps(document).encode()
        copy.write_bytes(gzip.compress(text) if is_gzip else text)
    return copy


def _mix(events: list[Any], seed: int) -> None:
    """All but a first one that names a process: that is no event, and some formats are recognised by it."""
    is_name = bool(events) and isinstance(events[0], dict) and events[0].get("ph") == "M"
    first = [events.pop(0)] if is_name else []
    if seed == 0:
        events.reverse()
    else:
        random.Random(seed).shuffle(events)  # noqa: S311 (a test's dice)
    events[:0] = first


def _lists(document: Any) -> list[list[Any]]:  # noqa: ANN401 (any JSON)
    """The lists of events of a Chrome trace, or of a rocprofv3 result."""
    if isinstance(document, list):
        return [document]
    if "traceEvents" in document:
        return [document["traceEvents"]]
    tools = document["rocprofiler-sdk-tool"]
    parts = [part for tool in tools for part in (tool["buffer_records"], tool["callback_records"])]
    return [rows for part in parts for rows in part.values() if isinstance(rows, list)]


def _shuffle_database(file: Path, seed: int) -> None:
    """Inserts the rows of each table in another order, so that each has another rowid, but where that is a key.

    The row of NVTX_EVENTS is what Nsight calls the range by (RangeId), and so content.
    """
    order = f"(rowid * {_PRIME * seed}) % 10007, rowid" if seed else "rowid DESC"
    with closing(sqlite3.connect(file)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table == "NVTX_EVENTS" or any(
                column[5] for column in connection.execute(f'PRAGMA table_info("{table}")')
            ):
                continue
            connection.execute(f'CREATE TEMP TABLE mixed AS SELECT * FROM "{table}" ORDER BY {order}')  # noqa: S608
            connection.execute(f'DELETE FROM "{table}"')  # noqa: S608
            connection.execute(f'INSERT INTO "{table}" SELECT * FROM mixed ORDER BY rowid')  # noqa: S608
            connection.execute("DROP TABLE mixed")
        connection.commit()


def _profile(content: bytes, seed: int) -> bytes:
    """XSpace: planes are field 1, their lines 3, and the events of those 4."""
    for path in ((1, 3, 4), (1, 3), (1,)):
        content = _mixed_fields(content, path, seed)
    return content


def _mixed_fields(message: bytes, path: Sequence[int], seed: int) -> bytes:
    """The message with the repeated field at the path, which is of messages, in another order."""
    number, *below = path
    fields = _fields(message)
    mine = [payload for field, _, payload in fields if field == number]
    if below:
        mine = [_mixed_fields(payload, below, seed) for payload in mine]
    else:
        _mix(mine, seed)
    left = iter(mine)
    parts = (_field(number, next(left)) if field == number else payload for field, payload, _ in fields)
    return b"".join(parts)


def _fields(message: bytes) -> list[tuple[int, bytes, bytes]]:
    """Of each field its number, all its bytes, and its payload where it has a length."""
    fields, at = [], 0
    while at < len(message):
        first = at
        tag, at = _varint(message, at)
        payload = b""
        if tag & 7 == 0:
            _, at = _varint(message, at)
        elif tag & 7 == 2:
            size, at = _varint(message, at)
            payload = message[at : at + size]
            at += size
        else:
            at += 8 if tag & 7 == 1 else 4
        fields.append((tag >> 3, message[first:at], payload))
    return fields


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encoded(len(payload)) + payload


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
