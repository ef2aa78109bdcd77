"""What the head of a SQLite file says of its pages."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints

__all__ = ["CannotRead", "Layout", "Leaves", "Table", "layout", "leaves", "table"]

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
    head = os.pread(file.fileno(), _HEAD.size, 0)
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
class Table:
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


def table(connection: sqlite3.Connection, name: str) -> Table:
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
    return Table(
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
    content = os.pread(file.fileno(), layout.page_bytes, (page - 1) * layout.page_bytes)
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
