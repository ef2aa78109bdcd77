"""B33: who owns the memory that is in use when most is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import ratio
from xsp_analyze.frames.memory import KIND_COLUMNS, SERIES, alive_at_peak, memory_at, memory_peaks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView

__all__ = ["memory_at_peak"]

_OWNERS = ("phase", "layer_type", "layer_name")
_SCHEMA = {
    "run_id": pl.Int64(),
    "device_id": pl.Int64(),
    "grouping": pl.String(),
    "owner": pl.String(),
    "bytes": pl.Int64(),
    "total_bytes": pl.Int64(),
    "block_count": pl.Int64(),
    "peak_time_ns": pl.Int64(),
}
_ORDER = ("kind", *_OWNERS, "reserved", "device")


@analysis(
    "B33",
    "memory at the peak",
    needs=("allocations",),
    read=(
        "The kind says which remedy can help: activations shrink with the batch or by checkpointing, optimizer state "
        "by sharding or another optimizer, weights by a smaller type; what is reserved and free is fragmentation."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column(
            "grouping",
            pl.String(),
            "What it is divided by: kind, phase, layer_type, layer_name; or what is reserved then, or the device has.",
            role=Role.KEY,
        ),
        Column("owner", pl.String(), "Whose it is; null: of no layer, or in no phase.", role=Role.KEY),
        Column("bytes", pl.Int64(), "In use then.", "byte"),
        Column("share", pl.Float64(), "Of `total_bytes`."),
        Column(
            "total_bytes", pl.Int64(), "What is divided: all in use at the peak; all reserved; all there is.", "byte"
        ),
        Column("block_count", pl.Int64(), "Blocks that it is; null where they are not known one by one."),
        Column("peak_time_ns", pl.Int64(), "When most was in use, from the start of the trace.", "ns"),
    ),
    figure=FigureSpec("bars", x="owner", y=("bytes",), title="Memory in use at the peak", color="grouping", top=30),
    by_step=False,
)
def memory_at_peak(frames: StepView) -> pl.LazyFrame:
    """One row a run, device, grouping and owner with memory then, in this order of groupings, largest first."""
    peaks = frames.of_trace.once(memory_peaks)
    parts = [*_by_kind(frames, peaks), *_by_owner(frames), *_of_more(frames, peaks)]
    rows = pl.concat([part.select(pl.col(c).cast(t) for c, t in _SCHEMA.items()) for part in parts])
    position = pl.col("grouping").replace_strict({name: i for i, name in enumerate(_ORDER)}, return_dtype=pl.Int64)
    return (
        rows.filter(pl.col("bytes") != 0)
        .with_columns(ratio(pl.col("bytes"), pl.col("total_bytes")).alias("share"), position.alias("position"))
        .sort(*SERIES, "position", "bytes", "owner", descending=[False] * 3 + [True, False], nulls_last=True)
        .lazy()
    )


def _by_kind(frames: StepView, peaks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    wide = memory_at(frames.of_trace, peaks)
    alive = frames.of_trace.once(alive_at_peak)
    counts = alive.group_by(*SERIES, "kind").agg(pl.col("is_block").sum().cast(pl.Int64).alias("block_count"))
    for kind, column in KIND_COLUMNS.items():
        rows = _totals(wide).with_columns(pl.lit("kind").alias("grouping"), pl.lit(kind).alias("owner"))
        counted = rows.join(
            counts.filter(pl.col("kind") == kind, pl.col("block_count") > 0),
            on=SERIES,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        yield counted.with_columns(pl.Series("bytes", wide[column]))


def _totals(peaks: pl.DataFrame) -> pl.DataFrame:
    return peaks.select(
        *SERIES, pl.col("allocated_bytes").alias("total_bytes"), pl.col("time_ns").alias("peak_time_ns")
    )


def _by_owner(frames: StepView) -> Iterator[pl.DataFrame]:
    """By what allocated the blocks, where that is known of any; what is of no known block is named by its kind."""
    alive = frames.of_trace.once(alive_at_peak)
    for grouping in _OWNERS:
        owned = alive.filter(pl.col(grouping).is_not_null()).select(SERIES).unique()
        owner = pl.when("is_block").then(grouping).otherwise("kind").alias("owner")
        blocks = pl.col("is_block").sum().cast(pl.Int64)
        yield (
            alive.join(owned, on=SERIES, how="semi", nulls_equal=True)
            .group_by(*SERIES, owner, maintain_order=True)
            .agg(
                pl.col("bytes").sum(),
                pl.when(blocks > 0).then(blocks).alias("block_count"),
                pl.col("total_bytes", "peak_time_ns").first(),
            )
            .with_columns(pl.lit(grouping).alias("grouping"))
        )


def _of_more(frames: StepView, peaks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What is reserved divided into what is in use and what is not, and the device into what is reserved and not."""
    sizes = frames.of_trace.own_runs.frame("devices").group_by(SERIES).agg(pl.col("memory_bytes").max())
    reserving = peaks.filter(pl.col("reserved_bytes") > 0).join(sizes, on=SERIES, how="left", maintain_order="left")
    held, used = pl.col("reserved_bytes"), pl.col("allocated_bytes")
    has_size = reserving.filter(pl.col("memory_bytes") >= held)
    divided = (
        (reserving, "reserved", "in use", used, held),
        (reserving, "reserved", "reserved and free", held - used, held),
        (has_size, "device", "reserved", held, pl.col("memory_bytes")),
        (has_size, "device", "not reserved", pl.col("memory_bytes") - held, pl.col("memory_bytes")),
    )
    for rows, grouping, owner, size, total in divided:
        yield rows.select(
            *SERIES,
            pl.lit(grouping).alias("grouping"),
            pl.lit(owner).alias("owner"),
            size.alias("bytes"),
            total.alias("total_bytes"),
            pl.lit(None, pl.Int64).alias("block_count"),
            pl.col("time_ns").alias("peak_time_ns"),
        )
