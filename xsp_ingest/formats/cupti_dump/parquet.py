"""The Parquet form of a dump: its header in the file's metadata, its records a row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_ingest.formats.cupti_dump.header import PARQUET_KEY, parse_header
from xsp_ingest.staging.cupti_fields import TYPES
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xsp_ingest.formats.cupti_dump.header import Header

__all__ = ["is_parquet_dump", "read_parquet_header", "read_row_groups"]

_BATCH_ROWS = 1 << 16
_DAMAGED = (pa.ArrowException, OSError, ValueError)


def is_parquet_dump(path: Path) -> bool:
    """Whether the file's metadata says so; a damaged file says nothing."""
    try:
        return PARQUET_KEY in (pq.read_metadata(path).metadata or {})
    except _DAMAGED:
        return False


def read_parquet_header(path: Path) -> Header:
    """The header; XspError where the file is damaged or no dump."""
    metadata = _open(path).metadata
    if metadata.num_rows > path.stat().st_size:
        raise XspError("the Parquet file claims more records than it has bytes", path=path)
    text = (metadata.metadata or {}).get(PARQUET_KEY)
    if text is None:
        raise XspError("the Parquet file's metadata does not say that it is a CUPTI dump", path=path)
    return parse_header(text, path)


def read_row_groups(path: Path) -> Iterator[pl.DataFrame]:
    """The records in batches, with every field that is read; those the file lacks are null."""
    file = _open(path)
    names = [name for name in file.schema_arrow.names if name in TYPES]
    if "kind" not in names:
        raise XspError("the Parquet file has no column `kind`", path=path)
    try:
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            batch.validate(full=True)  # text that is not UTF-8 would be taken on trust from here on
            yield _typed(pl.DataFrame(batch))
    except _DAMAGED as error:
        raise XspError("the Parquet file is damaged", path=path, advice="Write or copy it again") from error


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except _DAMAGED as error:
        raise XspError("the Parquet file is damaged or cut off", path=path, advice="Write or copy it again") from error


def _typed(batch: pl.DataFrame) -> pl.DataFrame:
    columns = []
    for name, kind in TYPES.items():
        stored = batch[name] if name in batch.columns else None
        fits = stored is not None and (stored.dtype.is_integer() if kind.is_integer() else _is_text(stored.dtype))
        column = stored if stored is not None and fits else pl.Series(name, [None] * batch.height, dtype=kind)
        columns.append(column.cast(kind, strict=False))
    return pl.DataFrame(columns)


def _is_text(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)
