"""Small integers for the threads of a run, so that sweeps can keep a stack for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_model import scratch

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from xsp_model.arrays import Ints

__all__ = ["Threads"]

_UNKNOWN = -(1 << 63)  # a process or thread that the file does not name is one of its own


@dataclass(frozen=True, slots=True)
class Threads:
    """The processes and threads that occur; a thread's number is its process's index times `len(threads)` plus its."""

    processes: Ints
    threads: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Threads:
        """Those of rows with `process_id` and `thread_id`."""
        return cls(*(_numbers(rows[name].unique()) for name in ("process_id", "thread_id")))

    @property
    def count(self) -> int:
        """How many numbers there may be; the last is of those that are unknown."""
        return len(self.processes) * len(self.threads) + 1

    def numbers(self, rows: pl.DataFrame) -> NDArray[np.int32]:
        """For each row the number of its thread."""
        out: NDArray[np.int32] = scratch.empty(rows.height, np.int32)
        for piece in scratch.pieces(rows.height):
            part = rows[piece]
            process, has_process = _indices(self.processes, part["process_id"])
            thread, has_thread = _indices(self.threads, part["thread_id"])
            number = process * len(self.threads) + thread
            out[piece] = np.where(has_process & has_thread, number, self.count - 1)
        return out


def _numbers(values: pl.Series) -> Ints:
    return np.sort(values.fill_null(_UNKNOWN).to_numpy())


def _indices(sorted_numbers: Ints, values: pl.Series) -> tuple[Ints, NDArray[np.bool_]]:
    searched = values.fill_null(_UNKNOWN).to_numpy()
    if not len(sorted_numbers):
        return np.zeros(len(searched), dtype=np.int64), np.zeros(len(searched), dtype=np.bool_)
    if len(sorted_numbers) == 1:
        return np.zeros(len(searched), dtype=np.int64), searched == sorted_numbers[0]
    indices = np.minimum(np.searchsorted(sorted_numbers, searched), len(sorted_numbers) - 1)
    return indices, sorted_numbers[indices] == searched
