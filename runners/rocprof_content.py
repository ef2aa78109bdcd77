"""Whether a file of rocprofv3 holds what was asked for: kernels, or counters of kernels."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["counted_kernels", "recorded_kernels"]

_PIECE_BYTES = 1 << 22


def recorded_kernels(file: Path) -> bool:
    """Whether any kernel was recorded, or counted."""
    return _has(file, b'"dispatch_info":', "rocpd_kernel_dispatch")


def counted_kernels(file: Path) -> bool:
    """Whether any counter of a kernel is there."""
    return _has(file, b'"counter_id":', "rocpd_pmc_event")


def _has(file: Path, key: bytes, view: str) -> bool:
    if file.suffix == ".db":
        return _rows(file, view)
    end = b""
    with file.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            if key in end + piece:
                return True
            end = piece[-len(key) :]
    return False


def _rows(file: Path, view: str) -> bool:
    """Whether the database's view of that table, which is there whatever the GUID, has a row."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            return connection.execute(f"SELECT 1 FROM {view} LIMIT 1").fetchone() is not None  # noqa: S608
    except sqlite3.Error:
        return False
