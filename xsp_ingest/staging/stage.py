"""Collects the rows of a table piece by piece in compact columns, large ones on disk, and makes one frame of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from xsp_model.arrays import Bools

__all__ = ["Stage"]

_PIECE = 1 << 20
_NO_CODE = (1 << 32) - 1


class _Column(Protocol):
    def add(self, piece: pl.Series) -> None: ...

    def series(self, name: str) -> pl.Series: ...


class Stage:
    """The rows of one table so far; a frame added may be forgotten, or its memory used again, at once."""

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._columns: dict[str, _Column] = {name: _column_of(kind) for name, kind in types.items()}

    def add(self, rows: pl.DataFrame) -> None:
        """Adds rows, with all columns of the table."""
        for name, column in self._columns.items():
            column.add(rows[name])

    def frame(self) -> pl.DataFrame:
        """All rows. Words of a large table are an Enum, of one or two bytes a row rather than a Categorical's four."""
        return pl.DataFrame([column.series(name) for name, column in self._columns.items()])


def _column_of(kind: pl.DataType) -> _Column:
    if kind == pl.Int64:
        return _Numbers()
    return _Words() if kind == pl.Categorical else _Others(kind)


class _Numbers:
    """Whole numbers, null as 0 in one column and False in another, which is there once there is a null."""

    def __init__(self) -> None:
        self._values = scratch.Growing(np.int64)
        self._valid: scratch.Growing | None = None

    def add(self, piece: pl.Series) -> None:
        absent = piece.null_count()
        if absent and self._valid is None:
            self._valid = scratch.Growing(np.bool_)
            for first in range(0, self._values.count, _PIECE):
                self._valid.add(np.ones(min(_PIECE, self._values.count - first), dtype=np.bool_))
        self._values.add((piece.fill_null(0) if absent else piece).to_numpy())
        if self._valid is not None:
            self._valid.add(piece.is_not_null().to_numpy())

    def series(self, name: str) -> pl.Series:
        valid: Bools | None = None if self._valid is None else self._valid.column()
        return scratch.series(name, self._values.column(), valid)


class _Words:
    """Distinct words by the numbers that polars gives them, which hold while any column of words is there."""

    def __init__(self) -> None:
        self._any = pl.Series([], dtype=pl.Categorical)  # else a number would be another word's between two pieces
        self._codes = scratch.Growing(np.uint32)
        self._words: dict[int, str] = {}

    def add(self, piece: pl.Series) -> None:
        distinct = piece.unique().drop_nulls()
        self._words.update(zip(distinct.to_physical().to_list(), distinct.cast(pl.String).to_list(), strict=True))
        codes = piece.to_physical().cast(pl.UInt32)
        self._codes.add((codes.fill_null(_NO_CODE) if codes.null_count() else codes).to_numpy())

    def series(self, name: str) -> pl.Series:
        codes = self._codes.column()
        places = np.zeros(max(self._words, default=-1) + 2, dtype=np.uint32)
        places[-1] = len(self._words)  # null
        places[list(self._words)] = np.arange(len(self._words))
        words = list(self._words.values())
        if words and codes.nbytes >= scratch.MIN_BYTES:
            return self._enum(name, codes, places, pl.Enum(words))
        known = pl.Series([*words, None], dtype=pl.Categorical)
        return known.gather(places[np.minimum(codes, len(places) - 1)]).alias(name)

    def _enum(self, name: str, codes: NDArray[np.uint32], places: NDArray[np.uint32], kind: pl.Enum) -> pl.Series:
        smallest = pl.Series([], dtype=kind).to_physical().to_numpy().dtype
        found: NDArray[np.uint32] = scratch.empty(len(codes), smallest)
        valid = np.empty(len(codes), dtype=np.bool_)
        for piece in scratch.pieces(len(codes)):
            found[piece] = places[np.minimum(codes[piece], len(places) - 1)]
            valid[piece] = codes[piece] != _NO_CODE
            found[piece][~valid[piece]] = 0  # what is null must be of some word as well
        return scratch.series(name, found, valid).cat.to(kind)


class _Others:
    """Texts that differ from row to row, and fractions: as polars holds them."""

    def __init__(self, kind: pl.DataType) -> None:
        self._pieces = [pl.Series([], dtype=kind)]

    def add(self, piece: pl.Series) -> None:
        self._pieces.append(piece.clone())

    def series(self, name: str) -> pl.Series:
        return pl.concat(self._pieces, rechunk=True).alias(name)
