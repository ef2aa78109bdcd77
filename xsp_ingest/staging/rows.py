"""Collects rows of the staging tables one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.staging.raw import RAW_TABLES, frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Rows"]


class Rows:
    """Rows by table; columns not given are null."""

    def __init__(self) -> None:
        self._columns: dict[str, dict[str, list[object]]] = {
            name: {column: [] for column in columns} for name, columns in RAW_TABLES.items()
        }

    def add(self, table: str, **row: object) -> None:
        """Adds a row."""
        columns = self._columns[table]
        for column, values in columns.items():
            values.append(row.pop(column, None))
        if row:
            message = f"table {table} has no column {', '.join(sorted(row))}"
            raise ValueError(message)

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """Every staging table."""
        return {
            name: frame_of(name, pl.DataFrame(columns, schema=dict(RAW_TABLES[name])))
            for name, columns in self._columns.items()
        }
