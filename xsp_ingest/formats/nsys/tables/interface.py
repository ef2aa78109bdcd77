"""Nsight's tables as the reader asks for them, whatever kind of export holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from xsp_ingest.files.stored_columns import Among, Strings

__all__ = ["Tables"]


class Tables(Protocol):
    """One export; row numbers are those of the SQLite form, from 1."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def tables(self) -> frozenset[str]:
        """The tables that it holds."""

    @property
    def unreadable_texts(self) -> int:
        """Texts read so far that were not UTF-8 and had bytes replaced."""

    @property
    def strings(self) -> Strings:
        """The table StringIds."""

    @property
    def total_bytes(self) -> int:
        """Its size on disk."""

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where the export lacks it."""

    def count(self, table: str, where: Among | None = None) -> int:
        """Number of rows; 0 where the export lacks the table."""

    def integers(self, table: str, columns: Sequence[str], *, where: Among | None = None) -> pl.DataFrame:
        """Integer columns of a table with its rowid; those that it lacks are null, a missing table is empty."""

    def texts(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A text column in order of rowid, bytes that are not UTF-8 replaced and counted; null where missing."""

    def numbers(self, table: str, column: str, *, where: Among | None = None) -> pl.Series:
        """A column of any numbers as Float64 in order of rowid; null where missing or no number."""

    def cells(self, table: str, columns: Sequence[str], rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These columns, which the table has, of these rows, values as they are stored, in order of rowid."""

    def whole_rows(self, table: str, rowids: Sequence[int]) -> list[tuple[object, ...]]:
        """These rows with every column, in order of rowid."""
