"""Cells as integers: times in nanoseconds and sizes in bytes, in whatever unit nsys printed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import nanoseconds

if TYPE_CHECKING:
    from xsp_ingest.formats.nsys.stats_csv.sections import Section

__all__ = ["integers", "texts"]

_FACTORS = {
    "": 1, "ns": 1, "nsec": 1, "us": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6, "s": 10**9, "sec": 10**9,
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip


def integers(section: Section, heading: str) -> pl.Series:
    """A column of numbers in ns, bytes or as they are; null where the cell is empty or no number."""
    cells = section.columns.get(heading)
    if cells is None:
        return pl.Series(heading, [None] * section.height, dtype=pl.Int64)
    factor = _FACTORS.get(section.units.get(heading, ""), 1)
    return pl.Series(heading, [nanoseconds(cell, factor) for cell in cells], dtype=pl.Int64)


def texts(section: Section, heading: str) -> pl.Series:
    """A column of texts, empty where there is no such column."""
    return pl.Series(heading, section.columns.get(heading) or [""] * section.height, dtype=pl.String)
