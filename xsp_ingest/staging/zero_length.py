"""Keeps spans of no length beside those that start with them, where a profiler's clock is coarse."""

from __future__ import annotations

import polars as pl

__all__ = ["beside"]


def beside(spans: pl.DataFrame, levels: tuple[str, ...]) -> pl.DataFrame:
    """The spans of these levels that last 0 ns and start with another one of theirs, without their thread.

    On its thread such a span would be taken for a child of the other, as linking sees no more than times; without one
    it goes under the step it ran in.
    """
    level = pl.col("level").cast(pl.String)
    together = pl.len().over("process_id", "thread_id", "start_ns", level) > 1
    lost = level.is_in(levels) & (pl.col("duration_ns") == 0) & together
    return spans.with_columns(pl.when(~lost).then(pl.col("thread_id")).alias("thread_id"))
