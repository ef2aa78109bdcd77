"""One source, two engines: sequential sweeps run as plain Python on few rows and compiled on many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_model.columns.arrays import full
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import DTypeLike, NDArray

    from xsp_ingest.machine.functions import CompiledFunction
    from xsp_ingest.machine.native import Native

    Column = NDArray[Any]

__all__ = ["Sweep", "dual"]


class Sweep:
    """A function over columns, written in the part of Python that numba compiles, called as `sweep(*inputs)`.

    The function takes the inputs (columns of whole numbers, and whole numbers) and then the outputs, which it fills by
    index; it returns nothing, raises nothing, touches nothing else, not even a constant of another module, and calls no
    function of ours. Columns come to it as lists or as arrays, so it may index them, ask for `len`, and nothing more.
    Indexes must stay within 0..len-1: the compiled engine does not check them, and the plain one would take -1 for
    the last.
    """

    def __init__(self, function: Callable[..., None], compiled_function: CompiledFunction) -> None:
        self.function = function
        self.compiled_function = compiled_function
        self._machine_code: Native | None = None

    def __call__(
        self, *inputs: Column | int, outputs: int | Sequence[int] = 1, fill: int = -1, dtype: DTypeLike = np.int64
    ) -> Sequence[Column]:
        """Columns of `dtype` holding `fill` where not written.

        `outputs` says how many, each as long as the first input, or how long each is.
        """
        columns = [_as_numbers(each) if isinstance(each, np.ndarray) else each for each in inputs]
        rows = next(len(each) for each in columns if isinstance(each, np.ndarray))
        lengths = [rows] * outputs if isinstance(outputs, int) else outputs
        results = tuple(full(length, fill, dtype) for length in lengths)
        return self._run(columns, results, rows)

    def into(self, results: Sequence[Column], *inputs: Column | int) -> None:
        """Goes on with outputs that hold something already: a sweep over many rows may be taken in several parts."""
        columns = [_as_numbers(each) if isinstance(each, np.ndarray) else each for each in inputs]
        rows = max(len(each) for each in columns if isinstance(each, np.ndarray))
        for target, filled in zip(results, self._run(columns, results, rows), strict=True):
            if filled is not target:
                target[:] = filled

    def _run(self, columns: Sequence[Column | int], results: Sequence[Column], rows: int) -> Sequence[Column]:
        engine = self.run_compiled if self._is_worth_it(rows, columns, results) else self.run_plain
        return engine(columns, results)

    def run_plain(self, columns: Sequence[Column | int], results: Sequence[Column]) -> tuple[Column, ...]:
        """The sweep in the interpreter, on lists: indexing those is several times faster than indexing arrays."""
        lists = [result.tolist() for result in results]
        self.function(*(each.tolist() if isinstance(each, np.ndarray) else each for each in columns), *lists)
        return tuple(np.array(each, dtype=result.dtype) for each, result in zip(lists, results, strict=True))

    def run_compiled(self, columns: Sequence[Column | int], results: Sequence[Column]) -> tuple[Column, ...]:
        """The sweep as machine code; the results must be of the types that it is compiled for."""
        if self._machine_code is None:
            from xsp_ingest.machine.native import native  # noqa: PLC0415 (small traces need no compiler)

            self._machine_code = native(self.compiled_function)
        kinds = self.compiled_function.kinds
        taken = (
            np.ascontiguousarray(each, dtype=kind) if isinstance(each, np.ndarray) else each
            for each, kind in zip(columns, kinds, strict=False)
        )
        self._machine_code(*taken, *results)
        return tuple(results)

    def _is_worth_it(self, rows: int, columns: Sequence[Column | int], results: Sequence[Column]) -> bool:
        if rows < limits().sweep_min_rows or not self._fits(columns, results):
            return False
        if self._machine_code is not None:
            return True
        from xsp_ingest.machine.native import can_compile, is_at_hand  # noqa: PLC0415

        return is_at_hand(self.compiled_function) or (rows >= limits().sweep_compile_min_rows and can_compile())

    def _fits(self, columns: Sequence[Column | int], results: Sequence[Column]) -> bool:
        """Whether the columns are of the types that the machine code is made for, or can be made so without loss."""
        inputs = self.compiled_function.kinds[: len(columns)]
        return all(
            np.can_cast(each.dtype, kind) if isinstance(each, np.ndarray) else not kind
            for each, kind in zip(columns, inputs, strict=True)
        ) and self.compiled_function.kinds[len(columns) :] == tuple(each.dtype.name for each in results)


def _as_numbers(column: Column) -> Column:
    return column.view(np.uint8) if column.dtype == np.bool_ else column


def dual(compiled_function: CompiledFunction) -> Callable[[Callable[..., None]], Sweep]:
    """Makes a Sweep of the function that comes compiled as this; a decorator."""
    return lambda function: Sweep(function, compiled_function)
