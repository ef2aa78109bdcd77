"""Hardware counters of device activities, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze import formulas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = ["COUNTERS", "are_known", "attach_counters", "counted", "derived", "ideal_intensity"]

COUNTERS: Sequence[str] = ("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy")
"""The counters that tables show, as columns of a frame of activities."""

_METRICS = {
    "flop_count": "flop_count_sp",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "achieved_occupancy": "achieved_occupancy",
}


def attach_counters(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with the columns of COUNTERS (Float64, null: not measured); modelled numbers do not count."""
    source, metric = pl.col("source").cast(pl.String), pl.col("metric").cast(pl.String)
    measured = trace.scan("metrics").filter(metric.is_in(_METRICS.values()), ~source.str.starts_with("model")).collect()
    if measured.is_empty():
        return activities.with_columns(pl.lit(None, dtype=pl.Float64).alias(c) for c in COUNTERS)
    values = measured.group_by("span_id", maintain_order=True).agg(
        pl.col("value").filter(metric == name).first().alias(column) for column, name in _METRICS.items()
    )
    return activities.join(values, on="span_id", how="left", maintain_order="left")


def are_known(rows: pl.DataFrame) -> bool:
    """Whether any counter of any row was measured."""
    return any(rows[c].null_count() < rows.height for c in COUNTERS)


def counted(rows: pl.DataFrame) -> list[pl.Expr]:
    """Aggregates a group of the rows' counters: sums of the known ones, occupancy weighted by duration.

    `counted_ns` is the device time for which flops are known: the time that arithmetic throughput refers to.
    """
    if not are_known(rows):
        return [pl.lit(None, pl.Float64).alias(c) for c in (*COUNTERS, "counted_ns")]
    sums = [formulas.known_sum(pl.col(c)).alias(c) for c in COUNTERS[:3]]
    duration = pl.col("duration_ns")
    occupancy = formulas.weighted_mean(pl.col("achieved_occupancy"), duration).alias("achieved_occupancy")
    return [*sums, occupancy, duration.filter(pl.col("flop_count").is_not_null()).sum().alias("counted_ns")]


def derived(frame: pl.LazyFrame, ideal: float | None) -> pl.LazyFrame:
    """The frame with arithmetic_intensity, flop_per_s and memory_bound added from its aggregated counters."""
    flop, read, write = (pl.col(c) for c in COUNTERS[:3])
    return frame.with_columns(
        formulas.arithmetic_intensity(flop, read, write).alias("arithmetic_intensity"),
        formulas.flop_per_s(flop, pl.col("counted_ns")).alias("flop_per_s"),
    ).with_columns(formulas.is_memory_bound(pl.col("arithmetic_intensity"), ideal).alias("memory_bound"))


def ideal_intensity(trace: Trace) -> float | None:
    """Peak flop/s over peak byte/s where all devices of the trace agree on it; null: unknown or they differ."""
    ratio = pl.col("fp32_flop_per_s") / pl.col("dram_byte_per_s")
    values = trace.scan("devices").select(ratio.alias("ideal")).collect()["ideal"].unique().to_list()
    return values[0] if len(values) == 1 else None
