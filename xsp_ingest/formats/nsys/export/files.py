"""One table in a Parquet file, in an Arrow stream of its own, or in one stream among several in a file."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["ArrowFile", "ParquetFile", "streams_of"]

_ROWS_PER_BYTE = 16  # no table of times packs tighter; one that says so would burst
_SMALL_ROWS = 1 << 20
_AGAIN = "Export the .nsys-rep file again"
_TABLE_NAME = b"table_name"


@dataclass(frozen=True)
class ParquetFile:
    """A table of `nsys export --type parquetdir`."""

    path: Path

    @cached_property
    def names(self) -> Sequence[str]:
        """Its columns."""
        with _damage(self.path):
            return tuple(pq.read_schema(self.path).names)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        with _damage(self.path):
            _check_rows(pq.read_metadata(self.path).num_rows, self.path.stat().st_size, self.path)
            table = pq.ParquetFile(self.path).read(list(columns))
            return _sound(table.select(list(columns)))


@dataclass(frozen=True)
class ArrowFile:
    """A table of `nsys export --type arrowdir`, or the one at `offset` in a file of `--type arrow`.

    Mapped, not read: what a damaged file says of its sizes is never allocated.
    """

    path: Path
    offset: int = 0

    @cached_property
    def names(self) -> Sequence[str]:
        """Its columns."""
        with _damage(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            return tuple(ipc.open_stream(file).schema.names)

    def load(self, columns: Sequence[str]) -> pa.Table:
        """These columns, in order of row."""
        options = ipc.IpcReadOptions(included_fields=[self.names.index(name) for name in columns])
        batches: list[pa.RecordBatch] = []
        rows, size = 0, self.path.stat().st_size
        with _damage(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            reader = ipc.open_stream(file, options=options)
            for batch in reader:
                rows += batch.num_rows
                _check_rows(rows, size, self.path)
                batches.append(batch)
            return _sound(pa.Table.from_batches(batches, reader.schema))


def streams_of(path: Path) -> Mapping[str, ArrowFile]:
    """The tables of a file that holds one Arrow stream after another, each named in its schema."""
    streams: dict[str, ArrowFile] = {}
    size = path.stat().st_size
    with _damage(path), pa.memory_map(str(path)) as file:
        while (offset := file.tell()) < size:
            # No column is needed, only where the stream ends.
            reader = ipc.open_stream(file, options=ipc.IpcReadOptions(included_fields=[0]))
            name = (reader.schema.metadata or {}).get(_TABLE_NAME, b"").decode(errors="replace")
            for _ in reader:
                pass
            streams[name] = ArrowFile(path, offset)
            if file.tell() <= offset:
                break
    return streams


def _sound(table: pa.Table) -> pa.Table:
    """The table with texts as bytes, as nobody has checked that they are UTF-8, and nested columns as nulls.

    ArrowInvalid where its buffers do not hold what they say, which would be read beyond their ends.
    """
    columns = [_plain(column) for column in table.columns]
    plain = pa.table(columns, names=table.column_names)
    plain.validate(full=True)
    return plain


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    if pa.types.is_primitive(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    return pa.chunked_array([pa.nulls(len(column))])


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise XspError("the table's file is damaged or cut off", path=path, advice=_AGAIN) from error


def _check_rows(rows: int, size: int, path: Path) -> None:
    if rows > _SMALL_ROWS and rows > size * _ROWS_PER_BYTE:
        raise XspError(
            f"the table's file says that {size:,} bytes are {rows:,} rows, which no export is", path=path, advice=_AGAIN
        )
