"""The memory that the machine code fills, and the columns made of it without copying."""

from __future__ import annotations

import ctypes
import mmap
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from xsp_ingest.machine.sqlite import scan_state
from xsp_model import scratch
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from xsp_ingest.machine.sqlite.schema import Table
    from xsp_model.arrays import Ints

__all__ = ["Room", "RowRange", "Values"]


class Values(IntEnum):
    """What of a column is wanted: whole numbers (int64), any numbers (float64, null for others), or texts as bytes."""

    INTEGER = scan_state.INTEGER
    NUMBER = scan_state.NUMBER
    TEXT = scan_state.TEXT


_MAPPED_BYTES = 1 << 20
_POPULATE_WRITE = 23  # of Linux 5.14; older ones refuse it
_TYPES = {Values.INTEGER: np.int64, Values.NUMBER: np.float64}


def _zeros(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that cost nothing until they are written or read, in pages of the ordinary size.

    numpy asks for huge ones, which the system may have to make first: filling 600 MB took it 0.05 to 1.3 s, here 0.3 s.
    """
    size = count * np.dtype(dtype).itemsize
    if size < _MAPPED_BYTES or sys.platform == "win32":
        return np.zeros(count, dtype=dtype)
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=dtype)
    except OSError as error:
        raise MemoryError from error


def _touch(column: NDArray[Any]) -> None:
    """Has the system bring the memory of a column that is about to be filled all at once, where it can."""
    if sys.platform == "linux" and column.nbytes >= _MAPPED_BYTES:
        start = column.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        length = column.ctypes.data + column.nbytes - start
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _POPULATE_WRITE)


class RowRange:
    """Rows that one thread reads, from row `first` of the columns on."""

    def __init__(self, room: Room, first: int, max_rows: int, text_bytes: int) -> None:
        self.room = room
        self.first = first
        self.deferred = np.zeros(limits().page_reader_max_deferred_rows, dtype=np.int64)
        self.ends = {name: _zeros(max_rows + 1, np.int64) for name in room.texts}
        self.bytes = {name: _zeros(text_bytes + scan_state.PAD, np.uint8) for name in room.texts}
        self._text_bytes = text_bytes
        self.plan = np.zeros((len(room.record), scan_state.ENTRY_WORDS), dtype=np.int64)
        for offset, name in enumerate(room.record):
            if name is not None:
                self.plan[offset] = self._entry(room, name)
        self.state = np.zeros(scan_state.STATE_WORDS, dtype=np.int64)
        self.state[scan_state.MAX_ROWS] = max_rows
        self.state[scan_state.PREVIOUS] = np.iinfo(np.int64).min
        self.state[scan_state.COLUMNS] = len(room.record)
        self.state[scan_state.ROWIDS] = room.rowids[first:].ctypes.data
        self.state[scan_state.MAX_DEFERRED] = len(self.deferred)
        self.state[scan_state.DEFERRED_ROWS] = self.deferred.ctypes.data
        self.shapes = np.zeros(0, dtype=np.int64)
        if all(kind == Values.INTEGER for kind in room.selected.values()):
            self._keep_shapes(len(room.record), len(room.selected))

    def _entry(self, room: Room, name: str) -> list[int]:
        values = self.ends[name] if name in self.ends else room.values[name][self.first :]
        text = self.bytes[name].ctypes.data if name in self.ends else 0
        missing = room.missing[name][self.first :].ctypes.data
        return [room.selected[name], values.ctypes.data, missing, int(name in room.plain), 0, text, 0, self._text_bytes]

    def _keep_shapes(self, columns: int, selected: int) -> None:
        """Has the machine code remember how records look: of whole numbers alone."""
        full_words, rest = divmod(
            1 + columns, 8
        )  # a byte says how long the head is, and one of each column what it holds
        length = scan_state.SHAPE_HEAD_WORDS + full_words + 1 + scan_state.STEP_WORDS * selected
        self.shapes = np.zeros(length * scan_state.KEPT_SHAPES, dtype=np.int64)
        self.state[scan_state.SHAPES] = self.shapes.ctypes.data
        self.state[scan_state.SHAPE_BYTES] = 8 * length
        masks = [-1] * full_words + [(1 << 8 * rest) - 1, 0]
        self.state[scan_state.FIRST_MASK], self.state[scan_state.SECOND_MASK] = masks[:2]
        self.state[scan_state.FULL_WORDS], self.state[scan_state.LAST_MASK] = full_words, masks[full_words]

    def expect(self, share: float) -> None:
        """Makes ready for all rows after this share of the pages, but not in columns that held nothing so far."""
        rows = slice(self.first, self.first + min(round(self.rows / share), int(self.state[scan_state.MAX_ROWS])))
        _touch(self.room.rowids[rows])
        for offset, name in enumerate(self.room.record):
            if name in self.room.values and self.plan[offset, scan_state.NULLS] < self.rows:
                _touch(self.room.values[name][rows])

    @property
    def rows(self) -> int:
        """Rows so far."""
        return int(self.state[scan_state.ROWS])


class Room:
    """Room for the chosen columns of so many rows at most, each of a kind of value; and what is in it at the end."""

    def __init__(self, table: Table, selected: Mapping[str, Values], max_rows: int) -> None:
        self.selected = selected
        self.plain = table.plain
        stored = {table.index_of(name): name for name in selected if name != table.rowid}
        self.record = [stored.get(offset) for offset in range(max(stored, default=-1) + 1)]
        self.texts = [name for name in stored.values() if selected[name] == Values.TEXT]
        # What is never written stays untouched memory, which costs nothing.
        self.rowids = _zeros(max_rows, np.int64)
        self.missing = {name: _zeros(max_rows, np.uint8) for name in stored.values()}
        numbers = [name for name in stored.values() if name not in self.texts]
        self.values = {name: _zeros(max_rows, _TYPES[selected[name]]) for name in numbers}

    def close_up(self, parts: Sequence[RowRange]) -> int:
        """Moves what the parts hold together; the number of rows."""
        rows = 0
        for part in parts:
            if part.first != rows:
                columns: list[NDArray[Any]] = [self.rowids, *self.missing.values(), *self.values.values()]
                for column in columns:
                    column[rows : rows + part.rows] = column[part.first : part.first + part.rows].copy()
            rows += part.rows
        return rows

    def numbers(self, name: str, parts: Sequence[RowRange], rows: int) -> pl.Series:
        """A column of numbers."""
        has_null = any(part.plan[self.record.index(name), scan_state.NULLS] for part in parts)
        valid = np.logical_not(self.missing[name][:rows]) if has_null else None
        return scratch.series(name, self.values[name][:rows], valid)

    def text(self, name: str, parts: Sequence[RowRange]) -> pl.Series:
        """A column of texts, as bytes."""
        first, pieces = 0, []
        for part in parts:
            missing = self.missing[name][first : first + part.rows]
            pieces.append(_binary(name, part.ends[name][: part.rows + 1], part.bytes[name], missing))
            first += part.rows
        return pl.concat(pieces)


def _binary(name: str, ends: Ints, content: NDArray[np.uint8], missing: NDArray[Any]) -> pl.Series:
    bitmap = pa.py_buffer(np.packbits(missing == 0, bitorder="little")) if missing.any() else None
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(content[: int(ends[-1])])]
    array = pa.Array.from_buffers(pa.large_binary(), len(missing), buffers, null_count=int(np.count_nonzero(missing)))
    return scratch.lent(name, array)
