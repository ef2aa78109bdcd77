"""One source, two engines: sequential sweeps run as plain Python on few rows and compiled on many."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_model.arrays import Ints

__all__ = ["Sweep", "dual"]

_MIN_ROWS = 500_000  # below, importing numba and loading the compiled code costs more than it saves
_MIN_ROWS_LOADED = 20_000  # likewise where something else has already imported numba


class Sweep:
    """A function over columns, written in the part of Python that numba compiles, called as `sweep(*inputs)`.

    The function takes the inputs (int64 columns and whole numbers) and then the outputs, which it fills by index;
    it returns nothing, touches nothing else and calls no function of ours. Columns come to it as lists or as arrays,
    so it may index them, ask for `len`, and nothing more. Indexes must stay within 0..len-1: the compiled engine
    does not check them, and the plain one would take -1 for the last.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *inputs: Ints | int, outputs: int = 1, fill: int = -1) -> tuple[Ints, ...]:
        """As many int64 columns as `outputs` says, as long as the first input, holding `fill` where not written."""
        columns = [
            np.ascontiguousarray(each, dtype=np.int64) if isinstance(each, np.ndarray) else each for each in inputs
        ]
        rows = next(len(each) for each in columns if isinstance(each, np.ndarray))
        if rows < (_MIN_ROWS_LOADED if "numba" in sys.modules else _MIN_ROWS):
            return self.plain(columns, rows, outputs, fill)
        return self.compiled(columns, rows, outputs, fill)

    def plain(self, columns: list[Ints | int], rows: int, outputs: int, fill: int) -> tuple[Ints, ...]:
        """The sweep in the interpreter, on lists: indexing those is several times faster than indexing arrays."""
        results = [[fill] * rows for _ in range(outputs)]
        self.function(*(each.tolist() if isinstance(each, np.ndarray) else each for each in columns), *results)
        return tuple(np.array(result, dtype=np.int64) for result in results)

    def compiled(self, columns: list[Ints | int], rows: int, outputs: int, fill: int) -> tuple[Ints, ...]:
        """The sweep as machine code, compiled once per installation and kept in numba's cache."""
        results = tuple(np.full(rows, fill, dtype=np.int64) for _ in range(outputs))
        # A frozen input would count as another type and be compiled once more; the engine never writes to inputs,
        # so all are passed as frozen views.
        self._machine_code(*(_frozen(each) if isinstance(each, np.ndarray) else each for each in columns), *results)
        return results

    @cached_property
    def _machine_code(self) -> Callable[..., None]:
        from numba import njit  # noqa: PLC0415 (0.3 s that a small trace need not pay)

        decorate: Callable[[Callable[..., None]], Any] = njit(cache=True, nogil=True)
        try:
            compiled: Callable[..., None] = decorate(self.function)
        except RuntimeError:  # no folder to keep machine code in: compile for this process alone
            compiled = njit(nogil=True)(self.function)
        return compiled


def dual(function: Callable[..., None]) -> Sweep:
    """Makes a Sweep of the function; a decorator."""
    return Sweep(function)


def _frozen(column: Ints) -> Ints:
    view = column.view()
    view.flags.writeable = False
    return view
