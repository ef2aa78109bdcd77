"""B28: blocks of layers that a model has several times, each of their positions a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import KERNEL_DURATION, LATENCY, LAYER_TYPE, MODEL_SHARE, STEP
from xsp_analyze.core import AMOUNT, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import known_sum, ratio
from xsp_analyze.frames.layers.repeated_blocks import folded_layers, standing_out
from xsp_analyze.frames.model_time import with_model_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["positions_of_blocks"]

_ROW = ("block_index", "position")


def _over(name: str, what: str) -> Column:
    return Column(name, pl.Float64(), f"{what} of the latencies of the layers at this position.", "ns")


@analysis(
    "B28",
    "repeated blocks",
    needs=("layer",),
    about_layers=True,
    additive=("call_count", "latency_ns", "kernel_duration_ns", "model_share"),
    read=(
        "Positions with most latency are what to work on once for all repetitions; an outlier does the same work as"
        " the others in more time, so look at what is different around it."
    ),
    columns=(
        STEP,
        Column("block_index", pl.Int64(), "The block, in order of first call.", role=Role.KEY),
        Column(
            "block",
            pl.String(),
            "What its outermost layers are called: `layers.{0..23}` stands for those from 0 to 23.",
            role=Role.LABEL,
        ),
        Column("position", pl.Int64(), "The layer within the block, in order of first own operator.", role=Role.KEY),
        Column(
            "position_name",
            pl.String(),
            "Names from the block down to the layer, without their numbers; equal ones are counted.",
            role=Role.LABEL,
        ),
        LAYER_TYPE,
        Column("repetition_count", pl.Int64(), "Layers at this position, one of each repetition of the block."),
        Column("call_count", AMOUNT, "Their calls; in a mean step, per step on average."),
        LATENCY,
        _over("median_ns", "Median"),
        _over("min_ns", "Least"),
        _over("max_ns", "Most"),
        Column(
            "outlier",
            pl.String(),
            "The layer with most, if it is above the median by more than 10 % and 3.5 times the median distance to it.",
            role=Role.LABEL,
        ),
        Column("outlier_excess", pl.Float64(), "By which part of the median the outlier is above it."),
        KERNEL_DURATION,
        MODEL_SHARE,
    ),
    figure=FigureSpec(
        "bars",
        x="position_name",
        y=("latency_ns",),
        title="Latency by position of repeated blocks",
        color="block",
        top=30,
    ),
)
def positions_of_blocks(frames: StepView) -> pl.LazyFrame:
    """One row a block and position, in order. Layers outside all blocks are in no row: A02 has them.

    Sums are those of A02 and A11 over the layers of the position.
    """
    latency = pl.col("latency_ns")
    rows = (
        folded_layers(frames)
        .group_by(*frames.by, *_ROW, maintain_order=True)
        .agg(
            pl.col("block", "position_name").first(),
            pl.col("position_type").first().alias("layer_type"),
            pl.len().cast(pl.Int64).alias("repetition_count"),
            known_sum(pl.col("call_count")),
            latency.median().cast(pl.Float64).alias("median_ns"),
            latency.min().cast(pl.Float64).alias("min_ns"),
            latency.max().cast(pl.Float64).alias("max_ns"),
            *standing_out(latency),
            known_sum(latency),
            known_sum(pl.col("kernel_duration_ns")),
        )
    )
    return (
        with_model_time(frames, rows.lazy())
        .with_columns(ratio(latency, pl.col("model_ns")).alias("model_share"))
        .sort(*frames.by, *_ROW)
    )
