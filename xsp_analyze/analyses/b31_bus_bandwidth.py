"""B31: how fast collectives were, by the size of their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.collectives import bus_factor, operations, with_sizes
from xsp_analyze.frames.rank_time import CALL, GROUP, with_waits

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["bus_bandwidth"]

_NS_PER_S = 1e9


@analysis(
    "B31",
    "bus bandwidth by message size",
    needs=("communication",),
    read=(
        "Small messages take as long as their latency, whatever their size: where the rate still grows with size,"
        " larger messages would be faster. Calls of which not all ranks are matched hold waiting too."
    ),
    columns=(
        STEP,
        Column("operation", pl.String(), "all_reduce, all_to_all, ..., as in B08.", role=Role.KEY),
        Column("process_group", pl.String(), "Name and ranks of the group; null: not recorded.", role=Role.KEY),
        Column(
            "from_bytes", pl.Int64(), "Least size of these messages, a power of two; all are below twice it.", "byte",
            role=Role.KEY,
        ),
        Column("ranks", pl.Int64(), "Ranks of the group, or of the job; null: not recorded.", role=Role.LABEL),
        Column("count", pl.Int64(), "Calls in the steps chosen; one that is matched between ranks counts once."),
        Column("matched_count", pl.Int64(), "Of these, those that are, so that their time is without waiting."),
        Column("message_bytes", pl.Float64(), "Mean size of a message; of a gather or scatter all parts.", "byte"),
        Column("transfer_ns", pl.Float64(), "Mean time of a call: the shortest rank's, or its own.", "ns"),
        Column("byte_per_s", pl.Float64(), "All bytes of the messages over all that time.", "byte/s"),
        Column("bus_byte_per_s", pl.Float64(), "What a rank's link carried in it, by the group's size.", "byte/s"),
        Column("min_bus_byte_per_s", pl.Float64(), "The same of the slowest call.", "byte/s"),
        Column("max_bus_byte_per_s", pl.Float64(), "The same of the fastest call.", "byte/s"),
    ),
    figure=FigureSpec(
        "scatter", x="message_bytes", y=("bus_byte_per_s",), title="Bus bandwidth by message size", color="operation"
    ),
)  # fmt: skip
def bus_bandwidth(frames: StepView) -> pl.LazyFrame:
    """One row an operation, process group and power of two of the size of its messages, in this order.

    Calls of unknown size, and those that took no time, are left out.
    """
    size = pl.col("message_bytes")
    bus = quotient(size * bus_factor(pl.col("operation"), pl.col("ranks")) * _NS_PER_S, pl.col("transfer_ns"))
    power = pl.lit(2, pl.Int64).pow(size.log(2).floor().cast(pl.Int64)).cast(pl.Int64)
    keys = [*frames.by, *GROUP, "from_bytes"]
    rate = size.sum() * _NS_PER_S / pl.col("transfer_ns").sum()
    factor = bus_factor(pl.col("operation").first(), pl.col("ranks").max())
    return (
        _calls(frames)
        .lazy()
        .filter(size > 0, pl.col("transfer_ns") > 0)
        .with_columns(bus.alias("bus"), power.alias("from_bytes"))
        .group_by(keys)
        .agg(
            pl.col("ranks").max(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("matched").sum().cast(pl.Int64).alias("matched_count"),
            rate.alias("byte_per_s"),
            (rate * factor).alias("bus_byte_per_s"),
            pl.col("bus").min().alias("min_bus_byte_per_s"),
            pl.col("bus").max().alias("max_bus_byte_per_s"),
            size.mean().alias("message_bytes"),
            pl.col("transfer_ns").cast(pl.Float64).mean(),
        )
        .sort(keys)
    )


def _calls(frames: StepView) -> pl.DataFrame:
    """One row a call that is matched between ranks, and one a kernel that is not."""
    rows = with_waits(with_sizes(frames.trace, frames.chosen(frames.once(operations))))
    rows = rows.with_columns(pl.coalesce("transfer_ns", "duration_ns").alias("transfer_ns"))
    alone = pl.when(~pl.col("matched")).then(pl.int_range(pl.len()))
    return rows.group_by(*CALL, alone.alias("row"), maintain_order=True).agg(
        pl.col("matched", "transfer_ns").first(),
        pl.col("ranks").max(),
        pl.col("message_bytes").mean().cast(pl.Float64),
    )
