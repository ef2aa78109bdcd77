"""Launches beside the named ranges that hold them, thread by thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys import sources
from xsp_analyze.analyses.nsys.containment import containing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["THREAD", "ThreadWork", "by_thread"]

THREAD = ("run_id", "process_id", "thread_id")


@dataclass(frozen=True)
class ThreadWork:
    """One thread's ranges (in order of range_id) and its launches, as `sources` gives them."""

    ranges: pl.DataFrame
    launches: pl.DataFrame

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Rows of launches, and beside each the row of a range that holds the whole call; every pair once."""
        pieces = containing(
            self.ranges["start_ns"].to_numpy(),
            self.ranges["end_ns"].to_numpy(),
            self.launches["call_start_ns"].to_numpy(),
            self.launches["call_end_ns"].to_numpy(),
        )
        nothing = (np.empty(0, dtype=np.int64),) * 2
        inner, outer = zip(nothing, *pieces, strict=True)
        return np.concatenate(inner), np.concatenate(outer)

    def inside(self, launch_columns: list[str], range_columns: list[str]) -> pl.DataFrame:
        """One row a pair: these columns of the launch and of the range, and `row`, the range's own."""
        launch, outer = self.pairs
        held = self.launches.select(launch_columns)[launch].with_columns(pl.Series("row", outer))
        return held.hstack(self.ranges.select(range_columns)[outer]) if range_columns else held

    @property
    def outside(self) -> pl.DataFrame:
        """The launches in no range."""
        free = np.ones(self.launches.height, dtype=bool)
        free[self.pairs[0]] = False
        return self.launches.filter(pl.Series(free))


def by_thread(view: TraceView, launches: pl.LazyFrame) -> Iterator[ThreadWork]:
    """Every thread that launched, in order; ranges that another thread closed hold nothing, as nsys has it."""
    closed = sources.ranges(view).filter(pl.col("end_thread_id").is_null()).sort("range_id").collect()
    ranges = closed.partition_by(THREAD, as_dict=True, maintain_order=True)
    for key, rows in (
        launches.sort(THREAD, maintain_order=True)
        .collect()
        .partition_by(THREAD, as_dict=True, maintain_order=True)
        .items()
    ):
        yield ThreadWork(ranges.get(key, closed.clear()), rows)
