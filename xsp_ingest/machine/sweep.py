"""One source, two engines: sequential sweeps run as plain Python on few rows and compiled on many."""

from __future__ import annotations

import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_model import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import DTypeLike, NDArray

    from xsp_ingest.machine.native import Native

    Column = NDArray[Any]

__all__ = ["Sweep", "dual"]

_MIN_ROWS = 100_000  # below, loading the compiled code costs more than it saves
_COMPILE_ROWS = 300_000  # below, compiling it does, which is done once per installation
_TAKEN = ("int64", "int32", "int16", "int8", "uint8")  # columns of other types are made int64


class Sweep:
    """A function over columns, written in the part of Python that numba compiles, called as `sweep(*inputs)`.

    The function takes the inputs (columns of whole numbers, and whole numbers) and then the outputs, which it fills by
    index; it returns nothing, raises nothing, touches nothing else, not even a constant of another module, and calls no
    function of ours. Columns come to it as lists or as arrays, so it may index them, ask for `len`, and nothing more.
    Indexes must stay within 0..len-1: the compiled engine does not check them, and the plain one would take -1 for
    the last.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(
        self, *inputs: Column | int, outputs: int | Sequence[int] = 1, fill: int = -1, dtype: DTypeLike = np.int64
    ) -> Sequence[Column]:
        """Columns of `dtype` holding `fill` where not written.

        `outputs` says how many, each as long as the first input, or how long each is.
        """
        columns = [_taken(each) if isinstance(each, np.ndarray) else each for each in inputs]
        rows = next(len(each) for each in columns if isinstance(each, np.ndarray))
        lengths = [rows] * outputs if isinstance(outputs, int) else outputs
        results = tuple(scratch.full(length, fill, dtype) for length in lengths)
        return self._run(columns, results, rows)

    def into(self, results: Sequence[Column], *inputs: Column | int) -> None:
        """Goes on with outputs that hold something already: a sweep over many rows may be taken in several parts."""
        columns = [_taken(each) if isinstance(each, np.ndarray) else each for each in inputs]
        rows = max(len(each) for each in columns if isinstance(each, np.ndarray))
        for given, found in zip(results, self._run(columns, results, rows), strict=True):
            if found is not given:
                given[:] = found

    def _run(self, columns: Sequence[Column | int], results: Sequence[Column], rows: int) -> Sequence[Column]:
        engine = self.compiled if self._is_worth_it(rows, self._kinds(columns, results)) else self.plain
        return engine(columns, results)

    def plain(self, columns: Sequence[Column | int], results: Sequence[Column]) -> tuple[Column, ...]:
        """The sweep in the interpreter, on lists: indexing those is several times faster than indexing arrays."""
        lists = [result.tolist() for result in results]
        self.function(*(each.tolist() if isinstance(each, np.ndarray) else each for each in columns), *lists)
        return tuple(np.array(each, dtype=result.dtype) for each, result in zip(lists, results, strict=True))

    def compiled(self, columns: Sequence[Column | int], results: Sequence[Column]) -> tuple[Column, ...]:
        """The sweep as machine code, compiled once per installation."""
        kinds = self._kinds(columns, results)
        if kinds not in self._machine_code:
            from xsp_ingest.machine.native import native  # noqa: PLC0415 (small traces need no compiler)

            name, stamp = self._name(kinds)
            self._machine_code[kinds] = native(name, lambda: self.function, kinds, stamp)
        self._machine_code[kinds](*columns, *results)
        return tuple(results)

    @cached_property
    def _machine_code(self) -> dict[tuple[str, ...], Native]:
        return {}

    def _kinds(self, columns: Sequence[Column | int], results: Sequence[Column]) -> tuple[str, ...]:
        return tuple(each.dtype.name if isinstance(each, np.ndarray) else "" for each in (*columns, *results))

    def _is_worth_it(self, rows: int, kinds: tuple[str, ...]) -> bool:
        if rows < _MIN_ROWS or rows >= _COMPILE_ROWS or kinds in self._machine_code:
            return rows >= _MIN_ROWS
        from xsp_ingest.machine.native import is_at_hand  # noqa: PLC0415

        return is_at_hand(*self._name(kinds))

    def _name(self, kinds: tuple[str, ...]) -> tuple[str, str]:
        """The name and the stamp under which machine code is kept."""
        code = self.function.__code__
        source = zlib.crc32(Path(code.co_filename).read_bytes())
        return self.function.__name__.strip("_"), f"{self.function.__module__}.{code.co_qualname} {kinds} {source}"


def _taken(column: Column) -> Column:
    if column.dtype == np.bool_:
        column = column.view(np.uint8)
    return np.ascontiguousarray(column, dtype=None if column.dtype.name in _TAKEN else np.int64)


def dual(function: Callable[..., None]) -> Sweep:
    """Makes a Sweep of the function; a decorator."""
    return Sweep(function)
