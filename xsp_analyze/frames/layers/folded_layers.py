"""Layers of repeated blocks with their times, equal ones folded, and which of the equal ones stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import known_sum, quotient
from xsp_analyze.frames.kernels.measured_work import layer_kernels
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_latencies
from xsp_analyze.frames.layers.repeated_blocks import LABELS_AS_TEXT, repeated_blocks
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.needs import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.trace.step_view import StepView

__all__ = ["folded_layers", "folded_rows", "largest_blocks", "layer_times", "standing_out"]

_MIN_EXCESS = 0.1  # of the median
_MIN_DEVIATIONS = 3.5  # median absolute deviations: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993


def folded_layers(frames: StepView) -> pl.DataFrame:
    """`repeated_blocks` with the times of `layer_times`; a row a step too, where each is answered.

    A layer without a time in the steps chosen has no row.
    """
    members = frames.of_trace.once(repeated_blocks).with_columns(LABELS_AS_TEXT)
    rows = members.join(layer_times(frames), on=LAYER_KEY, how="inner", nulls_equal=True)
    return rows.sort(*frames.by, "block_index", "repetition", "position")


def layer_times(frames: StepView) -> pl.DataFrame:
    """LAYER_KEY, latency_ns and call_count of each layer as A02 has them, kernel_duration_ns as A11 has it."""
    keys = [*frames.by, *LAYER_KEY]
    times = frames.once(layer_latencies).select(*keys, "latency_ns", "call_count").with_columns(LABELS_AS_TEXT)
    if not holds(frames.of_trace, "kernel"):
        return times.with_columns(pl.lit(None, times.schema["latency_ns"]).alias("kernel_duration_ns"))
    device = layer_kernels(frames).select(*keys, "kernel_duration_ns").collect()
    return times.join(device, on=keys, how="left", nulls_equal=True, maintain_order="left")


def standing_out(values: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Of a group of layers the name of the one with most, and its excess over the median as a part of it.

    Null where it is not above by more than a tenth and by 3.5 times the median absolute deviation.
    """
    median, largest = values.median(), values.max()
    deviation = (values - median).abs().median()
    above = largest - median
    stands_out = (above > _MIN_EXCESS * median) & (above > _MIN_DEVIATIONS * deviation) & (median > 0)
    name = pl.col("layer_name").get(values.arg_max())
    return pl.when(stands_out).then(name).alias("outlier"), pl.when(stands_out).then(above / median).alias(
        "outlier_excess"
    )


# Blocks, the positions in them and single layers as rows, what holds a row before it.

_ORDER = ("top", "block_index", "position", "repetition")  # nulls first: what holds a row stands before it


def folded_rows(frames: StepView) -> pl.DataFrame:
    """Name, depth (0: blocks, and layers in none), layer_type, sums, and the spread of what is folded into a row.

    `layer_index` is null of a row of several layers, `leads_to` the one of these that stands out.
    """
    members = folded_layers(frames)
    model = pl.lit(frames.once(latency_of_model)["model_ns"].item() or None, pl.Float64)
    top = pl.col("layer_index").min().over("block_index").alias("top")
    members = members.with_columns(top)
    keys = ["layer_index", "layer_name", "layer_type"]
    outside = layer_times(frames).join(members.select(keys), on=keys, how="anti", nulls_equal=True)
    parts = (_blocks(members), _positions(members), _layers(members, 2), _layers(outside, 0))
    rows = pl.concat(parts, how="diagonal_relaxed").sort(*_ORDER, nulls_last=[True, False, False, False])
    return rows.with_columns(quotient(pl.col("latency_ns"), model).alias("model_share"))


def _blocks(members: pl.DataFrame) -> pl.DataFrame:
    """A row a block: sums, and the spread of its repetitions, each with all its layers."""
    times = (known_sum(pl.col("latency_ns")), known_sum(pl.col("kernel_duration_ns")))
    each = members.group_by("top", "block_index", "block", "repetition", maintain_order=True).agg(*times)
    named = each.with_columns(
        pl.format("repetition {}", pl.col("repetition") + 1).alias("layer_name"),
        pl.lit(None, pl.Int64).alias("layer_index"),
    )
    return _spread(named, ["top", "block_index", "block"], 0).rename({"block": "name"})


def _positions(members: pl.DataFrame) -> pl.DataFrame:
    """A row a position of a block."""
    keys = ["top", "block_index", "position", "position_name", "position_type"]
    return _spread(members, keys, 1).rename({"position_name": "name", "position_type": "layer_type"})


def _spread(rows: pl.DataFrame, keys: Sequence[str], depth: int) -> pl.DataFrame:
    """Sums and spread of what has these keys; `leads_to` is the layer that stands out."""
    latency = pl.col("latency_ns")
    outlier, _ = standing_out(latency)
    largest = pl.col("layer_index").get(latency.arg_max())
    return rows.group_by(keys, maintain_order=True).agg(
        pl.lit(depth, pl.Int64).alias("depth"),
        pl.len().cast(pl.Int64).alias("count"),
        latency.median().cast(pl.Float64).alias("median_ns"),
        latency.min().cast(pl.Float64).alias("min_ns"),
        latency.max().cast(pl.Float64).alias("max_ns"),
        outlier,
        pl.when(outlier.is_not_null()).then(largest).alias("leads_to"),
        known_sum(latency),
        known_sum(pl.col("kernel_duration_ns")),
    )


def _layers(rows: pl.DataFrame, depth: int) -> pl.DataFrame:
    keys = [key for key in ("top", "block_index", "position", "repetition") if key in rows.columns]
    here = rows.select(*keys, "layer_index", "layer_name", "layer_type", "latency_ns", "kernel_duration_ns")
    top = () if "top" in keys else (pl.col("layer_index").alias("top"),)
    return here.with_columns(pl.lit(depth, pl.Int64).alias("depth"), *top).rename({"layer_name": "name"})


def largest_blocks(blocks: pl.DataFrame) -> pl.DataFrame:
    """Of B28's rows block, repetition_count and latency_ns of each block, the longest first."""
    of_blocks = (pl.col("block", "repetition_count").first(), pl.col("latency_ns").sum())
    return blocks.group_by("block_index", maintain_order=True).agg(of_blocks).sort(-pl.col("latency_ns"))
