"""What the head of a SQLite file says of its pages."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["CannotRead", "Layout", "layout"]

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
