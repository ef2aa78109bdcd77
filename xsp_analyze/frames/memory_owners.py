"""What is in use when most memory is: block by block, and what of it is no known block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.memory_blocks import SERIES, memory_blocks
from xsp_analyze.frames.memory_curve import KIND_COLUMNS, memory_at, memory_peaks

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["alive_at_peak"]


def alive_at_peak(frames: TraceView) -> pl.DataFrame:
    """One row a block in use at the peak of its run and device, and one a kind for what is of no block (`is_block`).

    Their bytes sum up to `total_bytes`, which is in use then, at `peak_time_ns`.
    """
    peaks = frames.once(memory_peaks)
    at = peaks.select(*SERIES, pl.col("sequence").alias("peak"), pl.col("allocated_bytes").alias("total_bytes"),
                      pl.col("time_ns").alias("peak_time_ns"))  # fmt: skip
    blocks = frames.once(memory_blocks).join(at, on=SERIES, how="inner", nulls_equal=True, maintain_order="left")
    alive = blocks.filter(
        pl.col("first") <= pl.col("peak"), pl.col("last").is_null() | (pl.col("last") > pl.col("peak"))
    )
    rest = _rest(memory_at(frames, peaks), at, alive)
    return pl.concat([alive.with_columns(is_block=pl.lit(value=True)), rest], how="diagonal").drop("peak")


def _rest(kinds: pl.DataFrame, at: pl.DataFrame, alive: pl.DataFrame) -> pl.DataFrame:
    """Of each kind what the blocks do not add up to."""
    by_kind = kinds.unpivot(list(KIND_COLUMNS.values()), index=SERIES, variable_name="column", value_name="all")
    names = {column: kind for kind, column in KIND_COLUMNS.items()}
    named = by_kind.with_columns(pl.col("column").replace_strict(names, return_dtype=pl.String).alias("kind"))
    seen = alive.group_by(*SERIES, "kind").agg(pl.col("bytes").sum())
    joined = named.join(seen, on=[*SERIES, "kind"], how="left", nulls_equal=True, maintain_order="left")
    left = joined.select(*SERIES, "kind", (pl.col("all") - pl.col("bytes").fill_null(0)).alias("bytes"))
    return (
        left.filter(pl.col("bytes") != 0)
        .join(at, on=SERIES, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(is_block=pl.lit(value=False))
    )
