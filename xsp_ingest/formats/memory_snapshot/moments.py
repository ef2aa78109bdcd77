"""Moments at which memory in use changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import int64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MOMENTS", "WHAT", "column"]

WHAT = "the memory record"
"""What complaints call the file."""

MOMENTS: Mapping[str, pl.DataType] = {
    "time_ns": pl.Int64(),  # Unix time
    "device_id": pl.Int64(),
    "bytes": pl.Int64(),
    "allocated_bytes": pl.Int64(),
    "reserved_bytes": pl.Int64(),
    "address": pl.Int64(),
    "category": pl.String(),
    "source_lines": pl.String(),
}


def column(values: Sequence[int | None]) -> pl.Series:
    """Integers; those that 64 bits do not hold are unknown."""
    return pl.Series([int64(value) for value in values], dtype=pl.Int64)
