"""Runs that something is taken from, and their rows of any table: what everything but a view sees of roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_model import Trace

__all__ = ["Runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Some runs of a trace, in order."""

    trace: Trace
    ids: Sequence[int]
    are_all: bool  # whether the trace has no others: then nothing is looked through

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and other.trace is self.trace and list(other.ids) == list(self.ids)

    def __hash__(self) -> int:
        return hash(tuple(self.ids))

    def __contains__(self, run: object) -> bool:
        return run in self.ids

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def table(self) -> pl.DataFrame:
        """Their rows of `runs`."""
        return self.of(self.trace.frame("runs"))

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows (with run_id) that belong to them, or to no run; the frame itself where all do: it may be large."""
        if self.are_all:
            return frame
        inside = frame["run_id"].is_in(list(self.ids)).fill_null(value=True)
        return frame if inside.all() else frame.filter(inside)

    def frame(self, table: str) -> pl.DataFrame:
        """Their rows of a table of the trace."""
        return self.of(self.trace.frame(table))

    def pieces(self, table: str, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """These columns (run_id among them) of their rows of a table, some rows at a time; see `Trace.pieces`."""
        return map(self.of, self.trace.pieces(table, columns))

    def scan(self, table: str) -> pl.LazyFrame:
        """Their rows of a table whose rows are each of a run, not yet read."""
        rows = self.trace.scan(table)
        return rows if self.are_all else rows.filter(pl.col("run_id").is_in(list(self.ids)))
