"""One source, two engines: sequential sweeps run as plain Python on few rows and compiled on many."""

from __future__ import annotations

import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_ingest.native import Native
    from xsp_model.arrays import Ints

__all__ = ["Sweep", "dual"]

_MIN_ROWS = 100_000  # below, loading the compiled code costs more than it saves
_COMPILE_ROWS = 1_000_000  # below, compiling it does, which is done once per installation


class Sweep:
    """A function over columns, written in the part of Python that numba compiles, called as `sweep(*inputs)`.

    The function takes the inputs (int64 columns and whole numbers) and then the outputs, which it fills by index;
    it returns nothing, raises nothing, touches nothing else, not even a constant of another module, and calls no
    function of ours. Columns come to it as lists or as arrays, so it may index them, ask for `len`, and nothing more.
    Indexes must stay within 0..len-1: the compiled engine does not check them, and the plain one would take -1 for
    the last.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *inputs: Ints | int, outputs: int = 1, fill: int = -1) -> tuple[Ints, ...]:
        """As many int64 columns as `outputs` says, as long as the first input, holding `fill` where not written."""
        columns = [
            np.ascontiguousarray(each, dtype=np.int64) if isinstance(each, np.ndarray) else each for each in inputs
        ]
        rows = next(len(each) for each in columns if isinstance(each, np.ndarray))
        engine = self.compiled if self._is_worth_it(rows, self._kinds(columns, outputs)) else self.plain
        return engine(columns, rows, outputs, fill)

    def plain(self, columns: list[Ints | int], rows: int, outputs: int, fill: int) -> tuple[Ints, ...]:
        """The sweep in the interpreter, on lists: indexing those is several times faster than indexing arrays."""
        results = [[fill] * rows for _ in range(outputs)]
        self.function(*(each.tolist() if isinstance(each, np.ndarray) else each for each in columns), *results)
        return tuple(np.array(result, dtype=np.int64) for result in results)

    def compiled(self, columns: list[Ints | int], rows: int, outputs: int, fill: int) -> tuple[Ints, ...]:
        """The sweep as machine code, compiled once per installation."""
        results = tuple(np.full(rows, fill, dtype=np.int64) for _ in range(outputs))
        kinds = self._kinds(columns, outputs)
        if kinds not in self._machine_code:
            from xsp_ingest.native import native  # noqa: PLC0415 (small traces need no compiler)

            name, stamp = self._name(kinds)
            self._machine_code[kinds] = native(name, lambda: self.function, kinds, stamp)
        self._machine_code[kinds](*columns, *results)
        return results

    @cached_property
    def _machine_code(self) -> dict[tuple[bool, ...], Native]:
        return {}

    def _kinds(self, columns: list[Ints | int], outputs: int) -> tuple[bool, ...]:
        return (*(isinstance(each, np.ndarray) for each in columns), *[True] * outputs)

    def _is_worth_it(self, rows: int, kinds: tuple[bool, ...]) -> bool:
        if rows < _MIN_ROWS or rows >= _COMPILE_ROWS or kinds in self._machine_code:
            return rows >= _MIN_ROWS
        from xsp_ingest.native import is_kept  # noqa: PLC0415

        return is_kept(*self._name(kinds))

    def _name(self, kinds: tuple[bool, ...]) -> tuple[str, str]:
        """The name and the stamp under which machine code is kept."""
        code = self.function.__code__
        source = zlib.crc32(Path(code.co_filename).read_bytes())
        return self.function.__name__.strip("_"), f"{self.function.__module__}.{code.co_qualname} {kinds} {source}"


def dual(function: Callable[..., None]) -> Sweep:
    """Makes a Sweep of the function; a decorator."""
    return Sweep(function)
