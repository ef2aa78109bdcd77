"""Hardware counters of device activities, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from xsp_analyze import formulas
from xsp_model.counters import FLOP_COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = [
    "COUNTERS",
    "Moved",
    "are_known",
    "attach_counters",
    "counted_time",
    "counter_columns",
    "counter_sums",
    "derived_counters",
    "moved_bytes",
    "summed_columns",
]

COUNTERS: Sequence[str] = ("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy")
"""The counters that every frame of activities has as columns; others are there where they were measured."""

_METRICS = {
    "flop_count": "flop_count_sp",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "achieved_occupancy": "achieved_occupancy",
}
_FLOP = pl.col("flop_count")
_FURTHER = {name: name for name in (*FLOP_COUNTS, "dram_bytes") if name != _METRICS["flop_count"]}


def attach_counters(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with `counter_columns` (Float64, null: not measured); modelled numbers do not count."""
    source, metric = pl.col("source").cast(pl.String), pl.col("metric").cast(pl.String)
    metric_of = _METRICS | _FURTHER
    measured = (
        trace.scan("metrics").filter(metric.is_in(metric_of.values()), ~source.str.starts_with("model")).collect()
    )
    if measured.is_empty():
        return activities.with_columns(pl.lit(None, dtype=pl.Float64).alias(c) for c in COUNTERS)
    present = set(measured["metric"].cast(pl.String).unique())
    columns = _METRICS | {column: name for column, name in _FURTHER.items() if name in present}
    values = measured.group_by("span_id", maintain_order=True).agg(
        pl.col("value").filter(metric == name).first().alias(column) for column, name in columns.items()
    )
    return activities.join(values, on="span_id", how="left", maintain_order="left")


def counter_columns(rows: pl.DataFrame) -> list[str]:
    """The columns of the rows that hold counters: COUNTERS, and flop counts of other precisions where measured."""
    return [*COUNTERS, *(c for c in _FURTHER if c in rows.columns)]


def summed_columns(rows: pl.DataFrame) -> list[str]:
    """Those of `counter_columns` that add up over kernels: all but occupancy."""
    return [c for c in counter_columns(rows) if c != "achieved_occupancy"]


def are_known(rows: pl.DataFrame) -> bool:
    """Whether any counter of any row was measured."""
    return any(rows[c].null_count() < rows.height for c in counter_columns(rows))


class Moved(NamedTuple):
    """Columns of a group with flop, bytes and time of the work of which both flop and DRAM traffic are known.

    Of other work intensity and bandwidth tell nothing: flop without its bytes would make the one too high.
    """

    flop: str
    moved_bytes: str
    moved_ns: str

    @classmethod
    def of(cls, flop_column: str) -> Moved:
        """Those that stand beside the flop count."""
        return cls(*(f"{flop_column}_{name}" for name in ("with_traffic", "traffic_bytes", "traffic_ns")))

    @property
    def names(self) -> tuple[str, str, str]:
        """All three."""
        return self.flop, self.moved_bytes, self.moved_ns


def counted_time(flop_column: str) -> str:
    """The column with the device time for which this flop count is known: what throughput refers to."""
    return "counted_ns" if flop_column == "flop_count" else f"{flop_column}_ns"


def counter_sums(rows: pl.DataFrame) -> list[pl.Expr]:
    """Aggregates a group of the rows' counters: sums of the known ones, occupancy weighted by duration.

    Beside each flop count stands its `counted_time`, and what intensity is made of: see `Moved`.
    """
    summed = summed_columns(rows)
    flops = [c for c in summed if c.startswith("flop_count")]
    if not are_known(rows):
        further = [name for c in flops for name in (counted_time(c), *Moved.of(c).names)]
        return [pl.lit(None, pl.Float64).alias(c) for c in (*summed, "achieved_occupancy", *further)]
    sums = [formulas.known_sum(pl.col(c)).alias(c) for c in summed]
    duration = pl.col("duration_ns")
    occupancy = formulas.weighted_mean(pl.col("achieved_occupancy"), duration).alias("achieved_occupancy")
    times = [duration.filter(pl.col(c).is_not_null()).sum().alias(counted_time(c)) for c in flops]
    return [*sums, occupancy, *times, *(each for c in flops for each in _moved_sums(c, rows.columns))]


def _moved_sums(flop_column: str, columns: Sequence[str]) -> list[pl.Expr]:
    flop, moved, names = pl.col(flop_column), moved_bytes(columns), Moved.of(flop_column)
    both = flop.is_not_null() & moved.is_not_null()
    values = {names.flop: flop, names.moved_bytes: moved, names.moved_ns: pl.col("duration_ns")}
    return [formulas.known_sum(value.filter(both)).cast(pl.Float64).alias(name) for name, value in values.items()]


def moved_bytes(columns: Sequence[str]) -> pl.Expr:
    """DRAM traffic of a row: bytes read and written, or the two together where only that was measured."""
    apart = pl.col("dram_read_bytes") + pl.col("dram_write_bytes")
    return pl.coalesce(apart, "dram_bytes") if "dram_bytes" in columns else apart


def derived_counters(frame: pl.LazyFrame, ideal: float | None) -> pl.LazyFrame:
    """The frame with arithmetic_intensity, flop_per_s and memory_bound added from its aggregated counters."""
    names, beside = frame.collect_schema().names(), Moved.of("flop_count")
    grouped = beside.flop in names
    flop, moved = (pl.col(beside.flop), pl.col(beside.moved_bytes)) if grouped else (_FLOP, moved_bytes(names))
    return frame.with_columns(
        formulas.arithmetic_intensity(flop, moved, pl.lit(0.0)).alias("arithmetic_intensity"),
        formulas.flop_per_s(_FLOP, pl.col("counted_ns")).alias("flop_per_s"),
    ).with_columns(formulas.is_memory_bound(pl.col("arithmetic_intensity"), ideal).alias("memory_bound"))
