"""Collects the rows of a table piece by piece in compact columns, large ones on disk, and makes one frame of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from xsp_model.columns import arrays
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Bools

__all__ = ["Stage"]

_PIECE = 1 << 20
_NO_ID = (1 << 32) - 1


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
        """All rows. Categories of a large table are an Enum, one or two bytes a row where a Categorical takes four."""
        return pl.DataFrame([column.series(name) for name, column in self._columns.items()])


def _column_of(kind: pl.DataType) -> _Column:
    if kind == pl.Int64:
        return _Numbers()
    return _Categories() if kind == pl.Categorical else _Others(kind)


class _Numbers:
    """Integers, null as 0 in one column and False in another, which is there once there is a null."""

    def __init__(self) -> None:
        self._values = arrays.Growing(np.int64)
        self._valid: arrays.Growing | None = None

    def add(self, piece: pl.Series) -> None:
        absent = piece.null_count()
        if absent and self._valid is None:
            self._valid = arrays.Growing(np.bool_)
            for first in range(0, self._values.count, _PIECE):
                self._valid.add(np.ones(min(_PIECE, self._values.count - first), dtype=np.bool_))
        self._values.add((piece.fill_null(0) if absent else piece).to_numpy())
        if self._valid is not None:
            self._valid.add(piece.is_not_null().to_numpy())

    def series(self, name: str) -> pl.Series:
        valid: Bools | None = None if self._valid is None else self._valid.column()
        return arrays.series(name, self._values.column(), valid)


class _Categories:
    """Distinct texts by the numbers that polars gives them, which hold while any categorical column is there."""

    def __init__(self) -> None:
        self._any = pl.Series([], dtype=pl.Categorical)  # else a number would be another text's between two pieces
        self._ids = arrays.Growing(np.uint32)
        self._texts: dict[int, str] = {}

    def add(self, piece: pl.Series) -> None:
        distinct = piece.unique().drop_nulls()
        self._texts.update(zip(distinct.to_physical().to_list(), distinct.cast(pl.String).to_list(), strict=True))
        ids = piece.to_physical().cast(pl.UInt32)
        self._ids.add((ids.fill_null(_NO_ID) if ids.null_count() else ids).to_numpy())

    def series(self, name: str) -> pl.Series:
        ids = self._ids.column()
        index_of = np.zeros(max(self._texts, default=-1) + 2, dtype=np.uint32)
        index_of[-1] = len(self._texts)  # null
        index_of[list(self._texts)] = np.arange(len(self._texts))
        texts = list(self._texts.values())
        if texts and ids.nbytes >= limits().mapped_column_min_bytes:
            return self._enum(name, ids, index_of, pl.Enum(texts))
        categories = pl.Series([*texts, None], dtype=pl.Categorical)
        return categories.gather(index_of[np.minimum(ids, len(index_of) - 1)]).alias(name)

    def _enum(self, name: str, ids: NDArray[np.uint32], index_of: NDArray[np.uint32], kind: pl.Enum) -> pl.Series:
        smallest = pl.Series([], dtype=kind).to_physical().to_numpy().dtype
        indices: NDArray[np.uint32] = arrays.empty(len(ids), smallest)
        valid = np.empty(len(ids), dtype=np.bool_)
        for piece in arrays.pieces(len(ids)):
            indices[piece] = index_of[np.minimum(ids[piece], len(index_of) - 1)]
            valid[piece] = ids[piece] != _NO_ID
            indices[piece][~valid[piece]] = 0  # what is null must have some category as well
        return arrays.series(name, indices, valid).cat.to(kind)


class _Others:
    """Texts that differ from row to row, and fractions: as polars holds them."""

    def __init__(self, kind: pl.DataType) -> None:
        self._pieces = [pl.Series([], dtype=kind)]

    def add(self, piece: pl.Series) -> None:
        self._pieces.append(piece.clone())

    def series(self, name: str) -> pl.Series:
        return pl.concat(self._pieces, rechunk=True).alias(name)
