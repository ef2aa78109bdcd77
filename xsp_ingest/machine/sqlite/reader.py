"""Columns of a table: the pages of the file in pieces, by two threads, through the machine code."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import polars as pl

from xsp_ingest.machine.functions import READ_LEAVES
from xsp_ingest.machine.native import can_compile, is_at_hand, is_ready, native
from xsp_ingest.machine.sqlite import scan_state
from xsp_ingest.machine.sqlite.columns import Room, RowRange, Values
from xsp_ingest.machine.sqlite.layout import CannotRead, layout
from xsp_ingest.machine.sqlite.schema import table
from xsp_ingest.machine.sqlite.tree import leaves
from xsp_model import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.machine.native import Native
    from xsp_ingest.machine.sqlite.layout import Layout
    from xsp_ingest.machine.sqlite.tree import Leaves
    from xsp_model.arrays import Ints

__all__ = ["ReadColumns", "read"]

_FINISH_BYTES = 8 << 20  # for less LLVM, which takes 0.06 s to load, is not waited for
_THREADS = 2
_TYPES = {Values.INTEGER: pl.Int64(), Values.NUMBER: pl.Float64()}


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
    """As many parts as there are threads, each with its pages."""
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
            columns.append(columns[0].alias(name).cast(_TYPES[room.selected[name]]))
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
