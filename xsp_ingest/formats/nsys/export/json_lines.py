"""Nsight's events as JSON, one a line, put back into the tables that the other exports have."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from xsp_ingest.files.content import lines
from xsp_ingest.formats.nsys.export.events import place_event
from xsp_ingest.formats.nsys.export.frames import Frames
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Collected", "is_json_lines", "read_json_lines"]

_STRINGS = re.compile(rb'^\s*\{"data":\["\[Unknown\]"')
_EVENT = re.compile(rb'^\s*\{"Type":\d+,"\w+Event\w*":\{', re.MULTILINE)
_STRING = re.compile(rb'^\s*\{"type":"String","id":"\d+"', re.MULTILINE)
_MAX_BITS = 63


@dataclass
class Rows:
    """One table's rows, column by column."""

    cells: dict[str, list[int | str | None]] = field(default_factory=dict)
    count: int = 0

    def add(self, row: Mapping[str, int | str | None]) -> None:
        """Appends a row; columns that it does not have are null."""
        for name in row.keys() - self.cells.keys():
            self.cells[name] = [None] * self.count
        for name, column in self.cells.items():
            column.append(row.get(name))
        self.count += 1

    @property
    def names(self) -> Sequence[str]:
        """Its columns."""
        return tuple(self.cells)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        return pa.table({name: _column(self.cells[name]) for name in columns})


def _column(cells: list[int | str | None]) -> pa.Array:
    if any(isinstance(cell, str) for cell in cells):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    return pa.array([_as_int64(cell) for cell in cells], pa.int64())


def _as_int64(cell: int | str | None) -> int | None:
    """As SQLite has it: unsigned numbers beyond 2^63 are negative, and what 64 bits cannot hold is unknown."""
    if not isinstance(cell, int) or not -(1 << _MAX_BITS) <= cell < 1 << (_MAX_BITS + 1):
        return None
    return cell - (1 << (_MAX_BITS + 1)) if cell >> _MAX_BITS > 0 else cell


@dataclass
class Collected(Frames):
    """An export read from events; `left_out` counts those of kinds that no table here takes."""

    left_out: Counter[str] = field(default_factory=Counter, init=False)


def is_json_lines(head: bytes) -> bool:
    """Whether a file that begins so is Nsight's JSON: its strings first, or an event a line."""
    return any(pattern.match(head) for pattern in (_STRINGS, _EVENT, _STRING))


def read_json_lines(path: Path) -> Collected:
    """The tables of the file; XspError where a line is no JSON object, or the file ends within one."""
    tables: dict[str, Rows] = {}
    export = Collected(path, tables, path.stat().st_size)
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    all_lines = (line for piece in lines(path) for line in piece.split(b"\n"))
    for number, line in enumerate(all_lines, 1):
        if not line.strip():
            continue
        try:
            _take(decoder.decode(line), tables, export.left_out)
        except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
            raise XspError(
                f"line {number:,} is no event of Nsight's, or the file is cut off there",
                path=path,
                advice="Export the .nsys-rep file again",
            ) from error
    return export


def _take(line: Mapping[str, msgspec.Raw], tables: dict[str, Rows], left_out: Counter[str]) -> None:
    if "data" in line:
        _strings(line["data"], tables)
        return
    if "type" in line:  # --separate-strings
        if _text(line["type"]) == "String":
            row: dict[str, int | str | None] = {"id": int(_text(line["id"])), "value": _text(line["value"])}
            tables.setdefault("StringIds", Rows()).add(row)
        return
    for name, body in line.items():
        if name in ("Type", "Timestamp", "Value"):
            continue
        placed = place_event(name, body)
        if placed is None:
            left_out[name] += 1
        else:
            table, row = placed
            tables.setdefault(table, Rows()).add(row)


def _strings(data: msgspec.Raw, tables: dict[str, Rows]) -> None:
    """The list of interned strings; a string's index is its id. The list of threads is not needed."""
    entries = msgspec.json.decode(data, type=list[str | dict[str, msgspec.Raw]])
    texts = [text for text in entries if isinstance(text, str)]
    if len(texts) < len(entries):
        return
    for string_id, text in enumerate(texts):
        tables.setdefault("StringIds", Rows()).add({"id": string_id, "value": text})


def _text(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=str)
