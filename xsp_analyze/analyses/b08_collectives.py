"""B08: communication by operation: how long, how exposed, how long ranks wait for each other, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.frames.collectives import bus_factors, operations

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["collectives"]

_ONE = ("step", "operation", "number")
_SUMS = (
    "count", "duration_ns", "exposed_ns", "matched_count", "matched_ns", "transfer_ns", "skew_ns", "bytes",
    "sized_count", "sized_ns",
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
        Column("rank_count", pl.Int64(), "Ranks (runs) in the trace that took part.", role=Role.LABEL),
        Column("count", pl.Float64(), "Kernels of a rank; in a mean step, per step on average."),
        Column("duration_ns", pl.Float64(), "Their time on a rank, mean over ranks.", "ns"),
        Column("exposed_ns", pl.Float64(), "Of that, while nothing computed on the device.", "ns"),
        Column("matched_count", pl.Float64(), "Of the count, those found in every one of these ranks."),
        Column(
            "transfer_ns", pl.Float64(), "Time of the rank that took part for the shortest, summed over those.", "ns"
        ),
        Column("wait_ns", pl.Float64(), "The rest of their time, mean over ranks: waiting for the last one.", "ns"),
        Column("skew_ns", pl.Float64(), "Between the first and the last rank to come, summed over those.", "ns"),
        Column(
            "straggler", pl.Int64(), "The rank that came last most often; null: ranks are not matched.", role=Role.LABEL
        ),
        Column("straggler_share", pl.Float64(), "How often it did, of those matched."),
        Column(
            "bytes", pl.Float64(), "Size of a rank's tensors, mean over ranks; null: the trace says of none.", "byte"
        ),
        Column("byte_per_s", pl.Float64(), "Bytes over the transfer time of those whose size is known.", "byte/s"),
        Column(
            "bus_byte_per_s", pl.Float64(), "What a rank's link carried, if all ranks of the job took part.", "byte/s"
        ),
    ),
    figure=FigureSpec("stacked_bars", x="operation", y=("transfer_ns", "wait_ns"), title="Communication by operation"),
)
def collectives(frames: StepFrames) -> pl.LazyFrame:
    """One row an operation, longest first, then by name.

    The n-th such operation of a step on one rank is the n-th on another. All ranks leave a collective together, so that
    the shortest kernel is that of the rank that came last, and needs no common clock.
    """
    matched = _matched(frames.chosen(operations(frames)))
    per_step = matched.group_by("run_id", "step", "operation", maintain_order=True).agg(pl.col(_SUMS).sum())
    keys = [*frames.by, "operation"]
    ranks = matched.group_by(keys, maintain_order=True).agg(
        pl.col("run_id").n_unique().cast(pl.Int64).alias("rank_count")
    )
    mean = (pl.col(c) / pl.col("rank_count") for c in _SUMS)
    return (
        frames.combine(per_step, ["operation"], _SUMS)
        .lazy()
        .join(ranks.lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(mean)
        .join(_stragglers(frames, matched).lazy(), on=keys, how="left", nulls_equal=True)
        .with_columns(*_derived(), *_rates(frames))
        .sort(*frames.by, -pl.col("duration_ns"), "operation")
    )


def _matched(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with what each adds to the sums; those that every rank has are matched, if there are several."""
    ranks = pl.col("run_id").n_unique().over("operation")
    here = pl.col("run_id").n_unique().over(_ONE)
    is_matched = (here == ranks) & (ranks > 1)
    shortest, longest = pl.col("duration_ns").min().over(_ONE), pl.col("duration_ns").max().over(_ONE)
    sized = pl.col("bytes").is_not_null()
    return rows.with_columns(is_matched.alias("matched")).with_columns(
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("matched").cast(pl.Int64).alias("matched_count"),
        pl.when("matched").then("duration_ns").otherwise(0).alias("matched_ns"),
        pl.when("matched").then(shortest).otherwise(0).alias("transfer_ns"),
        pl.when("matched").then(longest - shortest).otherwise(0).alias("skew_ns"),
        pl.when("matched").then(pl.col("duration_ns") == shortest).alias("last"),
        sized.cast(pl.Int64).alias("sized_count"),
        pl.when(sized).then(pl.when("matched").then(shortest).otherwise("duration_ns")).otherwise(0).alias("sized_ns"),
    )


def _stragglers(frames: StepFrames, matched: pl.DataFrame) -> pl.DataFrame:
    """Per operation the rank that came last most often (the lowest of several), and how often."""
    keys = [*frames.by, "operation"]
    runs = frames.trace.frame("runs").select("run_id", pl.coalesce("rank", "run_id").alias("straggler"))
    return (
        matched.filter("matched")
        .join(runs, on="run_id", how="left", maintain_order="left")
        .group_by(*keys, "straggler", maintain_order=True)
        .agg(pl.col("last").mean().alias("straggler_share"))
        .sort(*keys, -pl.col("straggler_share"), "straggler")
        .unique(keys, keep="first", maintain_order=True)
    )


def _derived() -> list[pl.Expr]:
    """Null where nothing is matched or no size is known; a wait is what lies beyond the shortest rank's time."""
    matched, sized = pl.col("matched_count") > 0, pl.col("sized_count") > 0
    return [
        pl.when(matched).then(pl.col("matched_ns") - pl.col("transfer_ns")).alias("wait_ns"),
        *(pl.when(matched).then(pl.col(c)).alias(c) for c in ("transfer_ns", "skew_ns")),
        pl.when(sized).then("bytes").alias("bytes"),
    ]


def _rates(frames: StepFrames) -> list[pl.Expr]:
    sizes = frames.trace.frame("runs")["world_size"].drop_nulls().unique()
    world = int(sizes[0]) if len(sizes) == 1 and sizes[0] > 1 else None
    rate = pl.when(pl.col("sized_ns") > 0).then(pl.col("bytes") * _NS_PER_S / pl.col("sized_ns"))
    if world is None:
        return [rate.alias("byte_per_s"), pl.lit(None, pl.Float64).alias("bus_byte_per_s")]
    factor = pl.col("operation").replace_strict(bus_factors(world), default=None, return_dtype=pl.Float64)
    return [rate.alias("byte_per_s"), (rate * factor).alias("bus_byte_per_s")]
