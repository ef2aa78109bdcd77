"""Frames as Arrow tables of the declared schema, and their Parquet files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model.errors import AGAIN, XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from xsp_model.schema import TableSpec

__all__ = ["conform", "read_parquet", "row_groups", "to_arrow", "write_parquet"]

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


def conform(rows: pl.DataFrame, spec: TableSpec) -> pl.DataFrame:
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


def read_parquet(path: Path) -> pa.Table:
    """The whole file; XspError where it or a text in it cannot be read. `pq.read_table` would import pandas first."""
    with _readable(path), pq.ParquetFile(path) as file:
        return _with_sound_texts(file.read())


def row_groups(path: Path, spec: TableSpec, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The file, or these columns of it, as tables that may be held at once, in order; XspError as above.

    Words are taken over as they are stored, which costs less than a scan's looking each of them up.
    """
    label_columns = [each.name for each in spec.columns if pa.types.is_dictionary(each.type)]
    with _readable(path):
        file = pq.ParquetFile(path, read_dictionary=label_columns)
    with file:
        for group in range(file.num_row_groups):
            with _readable(path):
                rows = _with_sound_texts(file.read_row_group(group, columns and list(columns), use_threads=False))
            yield rows


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise XspError(f"{path.name} cannot be read", path=path.parent, advice=AGAIN) from error


def _with_sound_texts(table: pa.Table) -> pa.Table:
    """The table; ArrowInvalid where a text is not UTF-8 or there is none, at which nobody looks while reading."""
    for column in table.columns:
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            column.validate(full=True)
    return table
