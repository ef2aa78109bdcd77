"""Memory in use over time: in all, by kind, and when it was most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.memory_blocks import SERIES, memory_blocks, memory_events
from xsp_model import MemoryKind

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["KIND_COLUMNS", "RECORDED", "SUMMED", "memory_at", "memory_curve", "memory_peaks", "of_series"]

RECORDED = "recorded"
"""The source counts what is in use."""
SUMMED = "summed"
"""Summed up from what was given out and taken back: what else was in use before the recording is not in it."""

KIND_COLUMNS = {
    str(kind): f"{kind.replace(' ', '_')}_bytes" for kind in MemoryKind if kind is not MemoryKind.BEFORE
} | {str(MemoryKind.BEFORE): "before_bytes"}
"""The column of each kind."""


def memory_curve(frames: TraceView) -> pl.DataFrame:
    """One row an event of a run and device: what was in use after it, in all and reserved, and how that is known.

    Sums begin at what was surely in use before: the most that was taken back beyond what had been given out. Where
    nothing says what was taken back, nothing is known of what is in use, and there are no rows. `rest` is the kind of
    what is in use and of no known block.
    """
    summed = pl.col("bytes").cum_sum().over(SERIES, order_by="sequence")
    counted = pl.col("allocated_bytes").is_not_null().any().over(SERIES)
    is_block = pl.col("bytes") != 0  # the others changed what is reserved
    nameless = (is_block & pl.col("address").is_null() & pl.col("category").is_null()).any().over(SERIES)
    events = frames.once(memory_events).with_columns(
        summed.alias("summed"), counted.alias("counted"), nameless.alias("nameless")
    )
    tells = (pl.col("bytes") < 0) | pl.any_horizontal(pl.col("allocated_bytes", "address", "category").is_not_null())
    divided = pl.col("category").is_not_null().all().over(SERIES)  # all of it, what was there before as well
    before = pl.min_horizontal(pl.col("summed").min().over(SERIES), 0)
    recorded = pl.col("allocated_bytes").forward_fill().over(SERIES, order_by="sequence")
    return (
        events.filter(tells.any().over(SERIES))
        .select(
            *SERIES,
            "sequence",
            "time_ns",
            pl.when("counted").then(recorded).otherwise(pl.col("summed") - before).alias("allocated_bytes"),
            "reserved_bytes",
            pl.when(pl.col("counted") | divided).then(pl.lit(RECORDED)).otherwise(pl.lit(SUMMED)).alias("basis"),
            pl.when("nameless")
            .then(pl.lit(str(MemoryKind.UNKNOWN)))
            .otherwise(pl.lit(str(MemoryKind.BEFORE)))
            .alias("rest"),
        )
        .drop_nulls("allocated_bytes")
    )


def memory_peaks(frames: TraceView) -> pl.DataFrame:
    """Of each run and device the event after which most was in use, the first of these; in this order."""
    curve = frames.once(memory_curve)
    at_most = curve.filter(pl.col("allocated_bytes") == pl.col("allocated_bytes").max().over(SERIES))
    return at_most.sort("sequence").unique(SERIES, keep="first", maintain_order=True).sort(*SERIES, nulls_last=True)


def memory_at(frames: TraceView, moments: pl.DataFrame) -> pl.DataFrame:
    """The moments (rows of `memory_curve`) with the bytes of each kind; together they are what was in use."""
    changes = frames.once(_changes)
    parts = [
        _memory_at(part, of_series(changes, run, device))
        for (run, device), part in moments.partition_by(SERIES, as_dict=True, maintain_order=True).items()
    ]
    return pl.concat(parts) if parts else _memory_at(moments, changes)


def of_series(rows: pl.DataFrame, run: object, device: object) -> pl.DataFrame:
    """Those of one run and device."""
    return rows.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))


def _memory_at(moments: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    at = moments["sequence"].to_numpy()
    sums = {
        column: pl.Series(_sum_until(changes.filter(pl.col("kind") == kind), at), dtype=pl.Int64)
        for kind, column in KIND_COLUMNS.items()
    }
    rest = pl.col("allocated_bytes") - pl.sum_horizontal(*KIND_COLUMNS.values())
    added = moments.with_columns(**sums).with_columns(rest.alias("unaccounted"))
    return added.with_columns(
        pl.when(pl.col("rest") == kind).then(pl.col(column) + pl.col("unaccounted")).otherwise(column).alias(column)
        for kind, column in KIND_COLUMNS.items()
    ).drop("unaccounted")


def _sum_until(changes: pl.DataFrame, at: Ints) -> Ints:
    """The sum of all changes up to and with each event."""
    ordered = changes.sort("sequence")
    sums = np.concatenate(([0], ordered["change"].to_numpy().cumsum()))
    out: Ints = sums[np.searchsorted(ordered["sequence"].to_numpy(), at, side="right")]
    return out


def _changes(frames: TraceView) -> pl.DataFrame:
    """SERIES, sequence, kind, and the bytes by which what is in use of that kind changed then."""
    blocks = frames.once(memory_blocks)
    named = frames.once(memory_events).filter(pl.col("address").is_null(), pl.col("category").is_not_null())
    return pl.concat(
        [
            blocks.select(*SERIES, pl.col("first").alias("sequence"), "kind", pl.col("bytes").alias("change")),
            blocks.drop_nulls("last").select(
                *SERIES, pl.col("last").alias("sequence"), "kind", (-pl.col("bytes")).alias("change")
            ),
            named.select(*SERIES, "sequence", pl.col("category").alias("kind"), pl.col("bytes").alias("change")),
        ]
    )
