"""Frames as Arrow tables of the declared schema, and their Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from xsp_model.schema import TableSpec

__all__ = ["PIECE_ROWS", "conformed", "to_arrow", "write_parquet"]

PIECE_ROWS = 1 << 17
"""Rows of a row group: what is written, and may be read, at once."""

_RISING = (
    "span_id",
    "parent_id",
    "layer_id",
    "start_ns",
    "time_ns",
    "correlation_id",
    "external_id",
    "sequence_number",
    "range_id",
    "forward_id",
)
_SIMPLE = {pa.int64(): pl.Int64(), pa.float64(): pl.Float64(), pa.bool_(): pl.Boolean(), pa.string(): pl.String()}


def conformed(rows: pl.DataFrame, spec: TableSpec) -> pl.DataFrame:
    """The rows in the declared columns and types; columns that are missing are null."""
    types = {c.name: pl.Categorical() if pa.types.is_dictionary(c.type) else _SIMPLE[c.type] for c in spec.columns}
    return rows.select(
        (pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, dtype=kind).alias(name))
        for name, kind in types.items()
    )


def to_arrow(frame: pl.DataFrame, spec: TableSpec) -> pa.Table:
    """A conforming frame with exactly the declared schema."""
    loose = pa.schema([f.with_nullable(True) for f in spec.schema])  # noqa: FBT003 (pyarrow's signature)
    return frame.to_arrow().cast(loose).cast(spec.schema)


def write_parquet(pieces: Iterable[pa.Table], spec: TableSpec, path: Path) -> None:
    """Writes a table, a row group a piece. Numbers that rise from row to row take less room and time as differences."""
    rising = [c.name for c in spec.columns if c.name in _RISING and c.type == pa.int64()]
    others = [c.name for c in spec.columns if c.name not in rising]
    encoding = dict.fromkeys(rising, "DELTA_BINARY_PACKED")
    with pq.ParquetWriter(
        path,
        spec.schema,
        compression="zstd",
        use_dictionary=others,
        column_encoding=encoding or None,
        write_statistics=[c.name for c in spec.columns if not pa.types.is_dictionary(c.type)],  # no one asks for words'
    ) as out:
        for piece in pieces:
            out.write_table(piece)
