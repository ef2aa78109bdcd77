"""Columns of a table from the pages of its SQLite file: where its rows are, the memory they go to, and the reading."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa

from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_ingest.machine.native import can_compile, is_at_hand, is_ready, native
from xsp_ingest.machine.sqlite import scan_state
from xsp_model import XspError
from xsp_model.columns.arrays import series, series_of_arrow
from xsp_model.limits import limits

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from xsp_ingest.machine.native import Native
    from xsp_model.columns.arrays import Ints

__all__ = [
    "READ_LEAVES",
    "CannotRead",
    "Layout",
    "Leaves",
    "ReadColumns",
    "Room",
    "RowRange",
    "StoredTable",
    "Values",
    "layout",
    "leaves",
    "read",
    "table",
]

# What the head of a SQLite file says of its pages.

_MAGIC = b"SQLite format 3\0"
_HEAD = struct.Struct(">16sHxBB3xII24xI32xI4x")  # page size, version, reserved, changes, pages, encoding, changes
_UTF8 = 1
_MIN_PAGE, _MAX_PAGE = 512, 65536
_MIN_USABLE = 480
_LOCK_BYTE = 1 << 30  # the page that holds it belongs to no table


class CannotRead(Exception):  # noqa: N818 (an answer, not an error)
    """The file, or this table of it, is such as SQLite itself should judge."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Pages are numbered from 1; of each the first `usable_bytes` are used."""

    page_bytes: int
    usable_bytes: int
    pages: int

    @property
    def lock_page(self) -> int:
        """The page that no table may have."""
        return _LOCK_BYTE // self.page_bytes + 1


def layout(file: BinaryIO) -> Layout:
    """The pages of a file that nobody is writing; CannotRead where its head leaves any doubt."""
    file.seek(0)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise CannotRead
    magic, page, version, reserved, changed, pages, encoding, valid_for = _HEAD.unpack(head)
    page_bytes = _MAX_PAGE if page == 1 else page
    if magic != _MAGIC or encoding != _UTF8 or changed != valid_for or version not in {1, 2}:
        raise CannotRead
    if not _MIN_PAGE <= page_bytes <= _MAX_PAGE or page_bytes & (page_bytes - 1):
        raise CannotRead
    if page_bytes - reserved < _MIN_USABLE or os.fstat(file.fileno()).st_size < page_bytes * pages:
        raise CannotRead
    if any(_lies_beside(file.name, suffix) for suffix in ("-journal", "-wal")):
        raise CannotRead
    return Layout(page_bytes, page_bytes - reserved, pages)


def _lies_beside(path: str, suffix: str) -> bool:
    beside = Path(f"{path}{suffix}")
    return beside.is_file() and beside.stat().st_size > 0


# Where a table's rows are and what its records hold, as SQLite itself tells.


@dataclass(frozen=True, slots=True)
class StoredTable:
    """`column_indices`: of each column its index in a record; `plain`: those without a default value."""

    root: int
    column_indices: Mapping[str, int]
    plain: frozenset[str]
    rowid: str | None  # the column that is another name of the rowid

    def index_of(self, column: str) -> int:
        """A column's index in a record; CannotRead where there is none of exactly this name."""
        if column not in self.column_indices:
            raise CannotRead
        return self.column_indices[column]


def table(connection: sqlite3.Connection, name: str) -> StoredTable:
    """A plain table; CannotRead where it is none, or where `rowid` means a column of its own."""
    roots = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE 'CREATE VIRTUAL%'",
        (name,),
    ).fetchall()
    columns = connection.execute("SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (name,))
    rows = columns.fetchall()
    if len(roots) != 1 or any(hidden for *_, hidden in rows) or any(column.lower() == "rowid" for column, *_ in rows):
        raise CannotRead
    key = [(column, kind) for column, kind, _, pk, _ in rows if pk]
    indexes = connection.execute("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", (name,)).fetchall()
    # Else the key is an index, as in a table without rowid, or with the key in descending order.
    is_rowid = len(key) == 1 and key[0][1].upper() == "INTEGER" and not indexes
    return StoredTable(
        int(roots[0][0]),
        {column: offset for offset, (column, *_) in enumerate(rows)},
        frozenset(column for column, _, default, *_ in rows if default is None),
        key[0][0] if is_rowid else None,
    )


# From a table's root page to its leaf pages, in order of rowid.
_INTERIOR, _LEAF = 5, 13
_INTERIOR_HEAD, _LEAF_HEAD = 12, 8
_MIN_INTERIOR_CELL, _MIN_LEAF_CELL = 5, 6  # a leaf's: four bytes and its place of two
_MAX_LEVELS = 16
_MAX_VARINT = 9
_LATEST = np.iinfo(np.int64).max
_EARLIEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Leaves:
    """Numbers of leaf pages in order of rowid, and how many rows each can have at most."""

    pages: Ints
    max_rows: Ints


def leaves(file: BinaryIO, layout: Layout, root: int) -> Leaves:
    """The leaves under a root page, none where the table is empty; CannotRead where the tree is not sound."""
    pages, last = np.array([root], dtype=np.int64), np.array([_LATEST], dtype=np.int64)  # highest rowid under each
    for _ in range(_MAX_LEVELS):
        _check(pages, layout)
        first = _page(file, layout, int(pages[0]))
        if first[0] == _LEAF:
            if len(pages) == 1 and not first[3:5].any():
                return Leaves(pages[:0], last[:0])
            return Leaves(pages, _max_rows(last, layout))
        parts = [
            _children(_page(file, layout, page), layout, end) for page, end in zip(pages.tolist(), last, strict=True)
        ]
        pages, last = (np.concatenate(each) for each in zip(*parts, strict=True))
    raise CannotRead


def _check(pages: Ints, layout: Layout) -> None:
    outside = (pages < 2) | (pages > layout.pages) | (pages == layout.lock_page)  # noqa: PLR2004 (1 is the schema's)
    if outside.any() or len(pages) > layout.pages:
        raise CannotRead


def _page(file: BinaryIO, layout: Layout, page: int) -> NDArray[np.uint8]:
    """Its bytes, and some zeros."""
    file.seek((page - 1) * layout.page_bytes)
    content = file.read(layout.page_bytes)
    if len(content) < layout.page_bytes:
        raise CannotRead
    return np.frombuffer(content[: layout.usable_bytes] + bytes(_MAX_VARINT + 4), dtype=np.uint8)


def _children(page: NDArray[np.uint8], layout: Layout, end: np.int64) -> tuple[Ints, Ints]:
    """Pages under an interior page, and the highest rowid under each; `end` is its own."""
    cells = int(page[3]) << 8 | int(page[4])
    directory_end = _INTERIOR_HEAD + 2 * cells
    if page[0] != _INTERIOR or not cells or directory_end > layout.usable_bytes:
        raise CannotRead
    column_indices = page[_INTERIOR_HEAD:directory_end].view(">u2").astype(np.int64)
    if column_indices.min() < directory_end or column_indices.max() > layout.usable_bytes - _MIN_INTERIOR_CELL:
        raise CannotRead
    pages = page[column_indices[:, None] + np.arange(4)].reshape(-1).view(">u4").astype(np.int64)
    rightmost = int.from_bytes(page[8:12].tobytes(), "big")
    return np.append(pages, rightmost), np.append(_rowids(page, column_indices + 4), end)


def _rowids(page: NDArray[np.uint8], column_indices: Ints) -> Ints:
    """The numbers of up to nine bytes at these places."""
    chars = page[column_indices[:, None] + np.arange(_MAX_VARINT)].astype(np.uint64)
    value = np.zeros(len(column_indices), dtype=np.uint64)
    going = np.ones(len(column_indices), dtype=np.bool_)
    for i in range(_MAX_VARINT):
        char = chars[:, i]
        bits = 7 if i < _MAX_VARINT - 1 else 8
        longer = value << np.uint64(bits) | char & np.uint64((1 << bits) - 1)
        value = np.where(going, longer, value)
        going &= char >= 128  # noqa: PLR2004 (more bytes follow)
    return value.view(np.int64)


def _max_rows(last: Ints, layout: Layout) -> Ints:
    max_count = (layout.usable_bytes - _LEAF_HEAD) // _MIN_LEAF_CELL
    if (last[1:] <= last[:-1]).any():
        raise CannotRead
    between = last.view(np.uint64) - np.concatenate([[_EARLIEST], last[:-1]]).astype(np.int64).view(np.uint64)
    return np.minimum(between, np.uint64(max_count)).astype(np.int64)


# The memory that the machine code fills, and the columns made of it without copying.


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

    def __init__(self, table: StoredTable, selected: Mapping[str, Values], max_rows: int) -> None:
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
        return series(name, self.values[name][:rows], valid)

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
    return series_of_arrow(name, array)


# Columns of a table: the pages of the file in pieces, by two threads, through the machine code.
READ_LEAVES = CompiledFunction(
    "read_leaves",
    "read_leaves",
    (NUMBER,) * 5,
    (
        f"{__package__}.cells",
        f"{__package__}.scan_state",
        "xsp_ingest.machine.intrinsics",
    ),
)
_FINISH_BYTES = 8 << 20  # for less LLVM, which takes 0.06 s to load, is not waited for
_THREADS = 2
_ROWID_TYPES = {Values.INTEGER: pl.Int64(), Values.NUMBER: pl.Float64()}


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """`frame` has the rowid and the chosen columns; `deferred` are the rows that SQLite must be asked for."""

    frame: pl.DataFrame
    deferred: Ints


def read(path: Path, connection: sqlite3.Connection, name: str, selected: Mapping[str, Values]) -> ReadColumns:
    """The wanted columns, in order of rowid.

    CannotRead where SQLite should read the table: it is small, or there is any doubt. XspError where cells overlap,
    which SQLite overlooks: a small file would become more rows than there is memory.
    """
    with path.open("rb", buffering=0) as file:
        pages = layout(file)
        where = table(connection, name)
        if selected.get(where.rowid or "") == Values.TEXT:
            raise CannotRead
        leaf_pages = leaves(file, pages, where.root)
        if not len(leaf_pages.pages) or not _is_worth_it(len(leaf_pages.pages) * pages.page_bytes):
            raise CannotRead
        try:
            room = Room(where, selected, int(leaf_pages.max_rows.sum()))
            parts = _parts(room, leaf_pages, pages)
        except MemoryError as error:
            raise CannotRead from error
        with ThreadPoolExecutor(len(parts)) as threads:
            tasks = [partial(copy_context().run, _fill, file, pages, part, own) for part, own in parts]
            list(threads.map(lambda task: task(), tasks))
    return _read_columns(room, [part for part, _ in parts], where.rowid)


def _is_worth_it(table_bytes: int) -> bool:
    if table_bytes < limits().page_reader_min_bytes or not hasattr(os, "preadv"):  # macOS before 11 and Windows lack it
        return False
    if is_ready(READ_LEAVES) or (table_bytes >= _FINISH_BYTES and is_at_hand(READ_LEAVES)):
        return True
    return table_bytes >= limits().page_reader_compile_min_bytes and can_compile()


def _parts(room: Room, leaf_pages: Leaves, pages: Layout) -> list[tuple[RowRange, Ints]]:
    """A part a thread, each with its pages."""
    before = np.concatenate([[0], np.cumsum(leaf_pages.max_rows)])
    threads = min(_THREADS, pl.thread_pool_size(), len(leaf_pages.pages))
    cuts = np.linspace(0, len(leaf_pages.pages), threads + 1).astype(np.int64).tolist()
    parts = []
    for start, stop in pairwise(cuts):
        first, max_count = int(before[start]), int(before[stop] - before[start])
        part = RowRange(room, first, max_count, (stop - start) * pages.usable_bytes)
        part.state[scan_state.USABLE] = pages.usable_bytes
        part.state[scan_state.PAGE_BYTES] = pages.page_bytes
        parts.append((part, leaf_pages.pages[start:stop]))
    return parts


def _fill(file: BinaryIO, pages: Layout, part: RowRange, selected: Ints) -> None:
    read_leaves = _machine_code()
    for piece, (content, slots) in enumerate(_pieces(file, pages, selected)):
        addresses = (each.ctypes.data for each in (part.state, part.plan, content, slots))
        check(file, read_leaves(*addresses, len(slots)))
        if piece == 0:
            part.expect(len(slots) / len(selected))


def check(file: BinaryIO, result: int) -> None:
    """Raises what the machine code's result means: CannotRead where SQLite may know better, XspError where not."""
    if result == scan_state.OVERLAPPING:
        message = "the SQLite database is damaged (cells of a page overlap)"
        raise XspError(message, path=Path(file.name), advice="Copy the file again, or export it once more")
    if result != scan_state.DONE:
        raise CannotRead


def _pieces(file: BinaryIO, pages: Layout, selected: Ints) -> Iterator[tuple[np.ndarray, Ints]]:
    """The wanted pages, some at a time: bytes that hold only until the next are asked for, and which page is where."""
    at_once = max(limits().page_reader_piece_bytes // pages.page_bytes, 1)
    spread = at_once * limits().page_reader_max_spread
    buffer = np.zeros(spread * pages.page_bytes + scan_state.PAD, dtype=np.uint8)
    for start in range(0, len(selected), at_once):
        some = selected[start : start + at_once]
        low, high = int(some.min()), int(some.max())
        if high - low < spread:
            _read(file, buffer, 0, low, high - low + 1, pages.page_bytes)
            yield buffer, some - low
        else:
            for slot, page in enumerate(some.tolist()):
                _read(file, buffer, slot, page, 1, pages.page_bytes)
            yield buffer, np.arange(len(some))


def _read(file: BinaryIO, buffer: np.ndarray, slot: int, page: int, count: int, page_bytes: int) -> None:
    target = buffer[slot * page_bytes : (slot + count) * page_bytes]
    if os.preadv(file.fileno(), [target.data], (page - 1) * page_bytes) != len(target):
        raise CannotRead


def _read_columns(room: Room, parts: Sequence[RowRange], rowid: str | None) -> ReadColumns:
    rows = room.close_up(parts)
    rowids = room.rowids[:rows]
    firsts = np.cumsum([0, *(part.rows for part in parts)])
    joints = firsts[1:-1]
    if (rowids[joints] <= rowids[joints - 1]).any():
        raise CannotRead
    columns = [pl.Series("rowid", rowids)]
    for name in room.selected:
        if name == rowid:
            columns.append(columns[0].alias(name).cast(_ROWID_TYPES[room.selected[name]]))
        else:
            columns.append(room.text(name, parts) if name in room.texts else room.numbers(name, parts, rows))
    deferred = [
        part.deferred[: int(part.state[scan_state.DEFERRED])] + first
        for part, first in zip(parts, firsts, strict=False)
    ]
    return ReadColumns(pl.DataFrame(columns), np.concatenate(deferred))


@cache
def _machine_code() -> Native:
    return native(READ_LEAVES)
