"""B08: communication by operation and process group: how long, how exposed, who waits for whom, how fast."""

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

__all__ = ["collectives"]

_SUMS = (
    "count", "duration_ns", "exposed_ns", "matched_count", "matched_ns", "transfer_ns", "skew_ns", "bytes",
    "sized_count", "message_bytes", "message_ns",
)  # fmt: skip
_NS_PER_S = 1e9


@analysis(
    "B08",
    "collectives",
    needs=("kernel", "communication"),
    read=(
        "Waiting is time in which a rank's communication kernel spins for ranks that come later: much of it means "
        "uneven work or a slow host on the straggler, not a slow network."
    ),
    columns=(
        STEP,
        Column(
            "operation", pl.String(), "all_reduce, all_to_all, ... as the framework or the kernel says.", role=Role.KEY
        ),
        Column(
            "process_group",
            pl.String(),
            "Name and ranks of the group as recorded; null: not recorded, so that all ranks are taken for one.",
            role=Role.KEY,
        ),
        Column(
            "rank_count", pl.Int64(), "Ranks (runs, or devices of a run) in the trace that took part.", role=Role.LABEL
        ),
        Column(
            "group_size",
            pl.Int64(),
            "Ranks of the group as recorded; null: not recorded. Where it is more than took part, a rank that is not in"
            " the trace may have come last.",
            role=Role.LABEL,
        ),
        Column("count", pl.Float64(), "Kernels of a rank; in a mean step, per step on average."),
        Column("duration_ns", pl.Float64(), "Their time on a rank, mean over ranks.", "ns"),
        Column("exposed_ns", pl.Float64(), "Of that, while nothing computed on the device.", "ns"),
        Column("matched_count", pl.Float64(), "Of the count, those found in every rank of the group in the trace."),
        Column(
            "transfer_ns", pl.Float64(), "Time of the rank that took part for the shortest, summed over those.", "ns"
        ),
        Column("wait_ns", pl.Float64(), "The rest of their time, mean over ranks: waiting for the last one.", "ns"),
        Column("skew_ns", pl.Float64(), "Between the first and the last rank to come, summed over those.", "ns"),
        Column(
            "straggler", pl.Int64(), "The rank that came last most often; null: ranks are not matched.", role=Role.LABEL
        ),
        Column("straggler_share", pl.Float64(), "How often it did, of those matched."),
        Column("bytes", pl.Float64(), "What a rank hands over, mean over ranks; null: the trace says of none.", "byte"),
        Column("sized_count", pl.Float64(), "Of the count, those whose bytes are known."),
        Column(
            "byte_per_s",
            pl.Float64(),
            "Size of the messages (of a gather or scatter that of all parts) over their transfer time; where nothing is"
            " matched, over their time, waiting included.",
            "byte/s",
        ),
        Column(
            "bus_byte_per_s",
            pl.Float64(),
            "What a rank's link carried, by the group's size; where that is not recorded, by the job's.",
            "byte/s",
        ),
    ),
    figure=FigureSpec("stacked_bars", x="operation", y=("transfer_ns", "wait_ns"), title="Communication by operation"),
)
def collectives(frames: StepView) -> pl.LazyFrame:
    """One row an operation and process group, longest first, then by name.

    The n-th such operation of a step and group on one rank is the n-th on another. All ranks leave a collective
    together, so that the shortest kernel is that of the rank that came last, and needs no common clock.
    """
    matched = _matched(with_sizes(frames.trace, frames.chosen(frames.once(operations))))
    per_step = matched.group_by("run_id", "step", *GROUP, maintain_order=True).agg(pl.col(_SUMS).sum())
    keys = [*frames.by, *GROUP]
    ranks = matched.group_by(keys, maintain_order=True).agg(
        pl.struct("run_id", "rank").n_unique().cast(pl.Int64).alias("rank_count"), pl.col("group_size", "ranks").max()
    )
    mean = (quotient(pl.col(c), pl.col("rank_count")) for c in _SUMS)
    return (
        frames.combine(per_step, GROUP, _SUMS)
        .lazy()
        .join(ranks.lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(mean)
        .join(_stragglers(frames, matched).lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(*_derived(), *_rates())
        .sort(*frames.by, -pl.col("duration_ns"), *GROUP)
    )


def _matched(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with what each adds to the sums; those that every rank has are matched, if there are several."""
    longest = pl.col("duration_ns").max().over(CALL)
    is_sized = pl.col("input_bytes").is_not_null()
    transfer = pl.coalesce("transfer_ns", "duration_ns")
    return with_waits(rows).with_columns(
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("matched").cast(pl.Int64).alias("matched_count"),
        pl.when("matched").then("duration_ns").otherwise(0).alias("matched_ns"),
        pl.col("transfer_ns").fill_null(0),
        (longest - pl.col("transfer_ns")).fill_null(0).alias("skew_ns"),
        (pl.col("last_share") > 0).alias("last"),
        pl.col("input_bytes").alias("bytes"),
        is_sized.cast(pl.Int64).alias("sized_count"),
        pl.when(pl.col("message_bytes").is_not_null()).then(transfer).otherwise(0).alias("message_ns"),
    )


def _stragglers(frames: StepView, matched: pl.DataFrame) -> pl.DataFrame:
    """Per operation and group the rank that came last most often (the lowest of several), and how often."""
    keys = [*frames.by, *GROUP]
    return (
        matched.filter("matched")
        .group_by(*keys, pl.col("rank").alias("straggler"), maintain_order=True)
        .agg(pl.col("last").mean().alias("straggler_share"))
        .sort(*keys, -pl.col("straggler_share"), "straggler")
        .unique(keys, keep="first", maintain_order=True)
    )


def _derived() -> list[pl.Expr]:
    """Null where nothing is matched or no size is known; a wait is what lies beyond the shortest rank's time."""
    matched, is_sized = pl.col("matched_count") > 0, pl.col("sized_count") > 0
    return [
        pl.when(matched).then(pl.col("matched_ns") - pl.col("transfer_ns")).alias("wait_ns"),
        *(pl.when(matched).then(pl.col(c)).alias(c) for c in ("transfer_ns", "skew_ns")),
        pl.when(is_sized).then("bytes").alias("bytes"),
    ]


def _rates() -> list[pl.Expr]:
    rate = pl.when(pl.col("message_ns") > 0).then(quotient(pl.col("message_bytes") * _NS_PER_S, pl.col("message_ns")))
    factor = bus_factor(pl.col("operation"), pl.col("ranks"))
    return [rate.alias("byte_per_s"), (rate * factor).alias("bus_byte_per_s")]
