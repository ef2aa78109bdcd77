"""Numpy arrays that hot paths pass around: names for them, and room for large ones on disk."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from xsp_model.errors import XspError
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import DTypeLike

__all__ = [
    "Bools",
    "Floats",
    "Growing",
    "Ints",
    "Positions",
    "distinct_numbers",
    "empty",
    "folder",
    "full",
    "gather_rows",
    "in_folder",
    "lookup",
    "no_refs",
    "no_room",
    "nullable_index",
    "pieces",
    "release",
    "series",
    "series_of_arrow",
    "to_scratch",
    "true_indices",
]

# Room for large columns: on disk, in files without a name, mapped into memory; small ones are ordinary arrays.
#
# A file without a name is gone when its column is, or when the process ends, however it ends. The system may put
# mapped pages away whenever it needs memory, and `release` takes them out of the process at once.

if TYPE_CHECKING:
    Rows = NDArray[np.signedinteger[Any]]  # not those of `arrays`, which is made of what is here
_RELEASED = 1 << 20  # rows after which a pass lets go of its pages: to fetch them again is not free
_FOLDER: ContextVar[Path | None] = ContextVar("scratch folder", default=None)


@contextmanager
def in_folder(path: Path) -> Iterator[None]:
    """Within it, large columns are in this folder rather than the system's temporary one."""
    before = _FOLDER.set(path)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def folder() -> str:
    """Where large columns are."""
    return str(_FOLDER.get() or tempfile.gettempdir())


class _Map(mmap.mmap):
    """Mapped memory that can be referred to weakly."""


_MAPS: weakref.WeakSet[_Map] = weakref.WeakSet()


def release() -> None:
    """Takes the pages of all large columns out of the process; their content stays, and comes back when asked for."""
    for each in list(_MAPS):
        with suppress(AttributeError, OSError, ValueError):  # not every system has it
            each.madvise(mmap.MADV_DONTNEED)


def pieces(count: int) -> Iterator[slice]:
    """Slices that cover so many rows, a few at a time; pages of those done with are let go now and then."""
    since, rows = 0, limits().pass_rows
    for first in range(0, count, rows):
        yield slice(first, min(first + rows, count))
        since += rows
        if since >= _RELEASED:
            release()
            since = 0
    if count >= _RELEASED:
        release()


def empty(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """A column whose content is whatever it is."""
    size = count * np.dtype(dtype).itemsize
    if size < max(limits().mapped_column_min_bytes, 1):
        return np.empty(count, dtype=dtype)
    with _file() as file:
        _reserve(file, size)
        return _map_file(file, size, dtype)


def full(count: int, fill: int, dtype: DTypeLike) -> NDArray[Any]:
    """A column with the same number everywhere."""
    out = empty(count, dtype)
    for piece in pieces(count):
        out[piece] = fill
    return out


def to_scratch(values: NDArray[Any]) -> NDArray[Any]:
    """The column where large ones are: for what is held for long."""
    out = empty(len(values), values.dtype)
    out[:] = values
    return out


def _file() -> BinaryIO:
    try:
        return tempfile.TemporaryFile(prefix="xsp-", dir=folder())
    except OSError as error:
        raise no_room(error) from error


def _reserve(file: BinaryIO, size: int) -> None:
    """Room on disk for all of it, now: to run out of it while writing to mapped memory would end the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        raise no_room(error) from error


def no_room(error: OSError) -> XspError:
    """What to tell of an error while writing into the folder."""
    what = "no room is left there for what does not fit into memory" if error.errno == errno.ENOSPC else error.strerror
    advice = "Name a folder with more room in the environment variable TMPDIR"
    return XspError(f"nothing can be kept in this folder: {what}", path=folder(), advice=advice)


def _map_file(file: BinaryIO, size: int, dtype: DTypeLike) -> NDArray[Any]:
    memory = _Map(file.fileno(), size)
    _MAPS.add(memory)
    return np.frombuffer(memory, dtype=dtype)


class Growing:
    """A column to which values are added piece by piece: first in memory, from a certain size on in a file."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._pieces: list[NDArray[Any]] = []
        self._file: BinaryIO | None = None
        self.count = 0

    def add(self, values: NDArray[Any]) -> None:
        """Adds the values, converted to the column's type."""
        self._pieces.append(np.array(values, dtype=self._dtype))
        self.count += len(values)
        waiting = sum(piece.nbytes for piece in self._pieces)
        if waiting and (self._file is not None or waiting >= limits().mapped_column_min_bytes):
            self._write()

    def _write(self) -> None:
        self._file = self._file or _file()
        try:
            for piece in self._pieces:
                self._file.write(piece.data)
        except OSError as error:
            raise no_room(error) from error
        self._pieces = []

    def column(self) -> NDArray[Any]:
        """All values; nothing can be added afterwards."""
        if self._file is None:
            return np.concatenate(self._pieces) if self._pieces else np.empty(0, dtype=self._dtype)
        with self._file as file:
            file.flush()
            return _map_file(file, self.count * self._dtype.itemsize, self._dtype)


def series(name: str, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pl.Series:
    """The same memory as a Series; null where not `valid`."""
    if valid is None:
        return _of_parts(name, values, None, 0)
    absent = len(values) - int(np.count_nonzero(valid))
    return _of_parts(name, values, np.packbits(valid, bitorder="little") if absent else None, absent)


def _of_parts(name: str, values: NDArray[Any], bitmap: NDArray[np.uint8] | None, absent: int) -> pl.Series:
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(values)]
    kind = pa.from_numpy_dtype(values.dtype)
    return series_of_arrow(name, pa.Array.from_buffers(kind, len(values), buffers, null_count=absent))


def series_of_arrow(name: str, array: pa.Array) -> pl.Series:
    """An Arrow array as a Series, the memory shared where polars can."""
    return pl.Series(_Lent(array)).alias(name)


class _Lent:
    """An Arrow array by its C interface alone: to take it whole, polars would import pyarrow.compute and pandas."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = self._array.__arrow_c_array__(requested_schema)
        return schema, array


def gather_rows(frame: pl.DataFrame, rows: Rows | None) -> pl.DataFrame:
    """These rows of the frame; None: all. Large whole-number and word columns of the result are on disk."""
    if rows is None:
        return frame
    if len(rows) * 8 < limits().mapped_column_min_bytes:
        return frame[rows]
    return pl.DataFrame([_gather_column(frame[name], rows) for name in frame.columns])


def _gather_column(column: pl.Series, rows: Rows) -> pl.Series:
    if column.null_count() == len(column):
        return pl.repeat(None, len(rows), dtype=column.dtype, eager=True).alias(column.name)
    if column.dtype == pl.Int64:
        return _gathered_numbers(column, rows)
    if column.dtype in (pl.Categorical, pl.Enum):
        return _gathered_numbers(column.to_physical(), rows).cat.to(column.dtype)
    parts = [column.gather(rows[piece]) for piece in pieces(len(rows))]
    return pl.concat(parts, rechunk=True)


def _gathered_numbers(column: pl.Series, rows: Rows) -> pl.Series:
    """The numbers where they are and whether they are there, taken apart: polars would put them together each time."""
    source = _values(column)
    valid = column.is_not_null().to_numpy() if column.null_count() else None
    values, bitmap = empty(len(rows), source.dtype), None
    if valid is not None:
        bitmap = empty(-(-len(rows) // 8), np.uint8)
    present = 0
    for piece in pieces(len(rows)):
        indices = rows[piece]
        source.take(indices, out=values[piece], mode="clip")  # the only mode that does not buffer the output
        if valid is not None and bitmap is not None:
            not_null = valid.take(indices, mode="clip")
            present += int(np.count_nonzero(not_null))
            bitmap[piece.start // 8 : -(-piece.stop // 8)] = np.packbits(not_null, bitorder="little")
    absent = 0 if valid is None else len(rows) - present
    return _of_parts(column.name, values, bitmap if absent else None, absent)


def _values(column: pl.Series) -> NDArray[Any]:
    """The numbers of a column as they lie in memory: anything where it is null."""
    if not column.null_count():
        return column.to_numpy()
    array = column.to_arrow()
    values = np.frombuffer(array.buffers()[1], dtype=array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


# Names for the numpy arrays that hot paths pass around.

Ints = NDArray[np.int64]
Positions = NDArray[np.signedinteger[Any]]
"""Positions of spans, -1 for none: of half the size where there are less than 2^31."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_MAX_INT32 = (1 << 31) - 1
_SMALL = 1 << 16  # a table of this many entries costs next to nothing


def no_refs(count: int) -> Positions:
    """A place for each of so many spans, none of them known yet."""
    return full(count, -1, np.int32 if count <= _MAX_INT32 else np.int64)


def true_indices(mask: Bools) -> Positions:
    """Where the mask is set, in order."""
    out = no_refs(int(np.count_nonzero(mask)))
    done = 0
    for piece in pieces(len(mask)):
        indices = np.flatnonzero(mask[piece])
        out[done : done + len(indices)] = indices + piece.start
        done += len(indices)
    return out


def nullable_index(at: Positions) -> pl.Series:
    """Positions to gather rows by: null for -1, which gathers null."""
    column = pl.Series(at)
    return column if bool((at >= 0).all()) else column.set(column < 0, None)


def distinct_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """The values in order and once each. NumPy's `unique` hashes them since 2.3: for times 170 times as long."""
    ordered = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[is_new])


def lookup(keys: Ints, sought: Ints) -> Ints:
    """For each wanted key its first place in `keys`, or -1: by a table where they are dense, else sorted.

    A wanted -1 may stand for none: it is looked up like any other key.
    """
    if not len(keys) or not len(sought):
        return full(len(sought), -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    dense = high - low < 4 * len(keys) + _SMALL
    find = _by_table(keys, low, high) if dense else _by_order(keys)
    out: Ints = empty(len(sought), np.int64)
    for piece in pieces(len(sought)):
        out[piece] = find(sought[piece])
    return out


def _by_table(keys: Ints, low: int, high: int) -> Callable[[Ints], Ints]:
    table = full(high - low + 1, -1, np.int32 if len(keys) <= _MAX_INT32 else np.int64)
    for piece in reversed(list(pieces(len(keys)))):
        table[keys[piece][::-1] - low] = np.arange(piece.stop - 1, piece.start - 1, -1)  # of equal keys the first stays

    def find(some: Ints) -> Ints:
        inside = (some >= low) & (some <= high)
        return np.where(inside, table.take(some - low, mode="clip"), -1)  # beyond all bounds differences come around

    return find


def _by_order(keys: Ints) -> Callable[[Ints], Ints]:
    order = np.argsort(keys, kind="stable")

    def find(some: Ints) -> Ints:
        at = np.searchsorted(keys, some, sorter=order)  # of equal keys the first
        nearest = order[np.minimum(at, len(keys) - 1)]
        return np.where(keys[nearest] == some, nearest, -1)

    return find
