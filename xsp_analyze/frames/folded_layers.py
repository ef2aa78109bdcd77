"""The layers of repeated blocks with their times, and which of the equal ones stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_analyze.frames.kernels.measured_work import layer_kernels
from xsp_analyze.frames.layer_time import LAYER_KEY, layer_latencies
from xsp_analyze.frames.repeated_blocks import repeated_blocks
from xsp_analyze.needs import holds

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["folded_layers", "layer_times", "standing_out", "with_equal_folded"]

_AS_TEXT = pl.col("layer_name", "layer_type").cast(pl.String)

_MIN_EXCESS = 0.1  # of the median
_MIN_DEVIATIONS = 3.5  # median absolute deviations: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993


def folded_layers(frames: StepView) -> pl.DataFrame:
    """`repeated_blocks` with the times of `layer_times`; a row a step too, where each is answered.

    A layer without a time in the steps chosen has no row.
    """
    members = frames.of_trace.once(repeated_blocks).with_columns(_AS_TEXT)
    rows = members.join(layer_times(frames), on=LAYER_KEY, how="inner", nulls_equal=True)
    return rows.sort(*frames.by, "block_index", "repetition", "position")


def layer_times(frames: StepView) -> pl.DataFrame:
    """LAYER_KEY, latency_ns and call_count of each layer as A02 has them, kernel_duration_ns as A11 has it."""
    keys = [*frames.by, *LAYER_KEY]
    times = frames.once(layer_latencies).select(*keys, "latency_ns", "call_count").with_columns(_AS_TEXT)
    if not holds(frames.of_trace, "kernel"):
        return times.with_columns(pl.lit(None, times.schema["latency_ns"]).alias("kernel_duration_ns"))
    device = layer_kernels(frames).select(*keys, "kernel_duration_ns").collect()
    return times.join(device, on=keys, how="left", nulls_equal=True, maintain_order="left")


def with_equal_folded(frames: StepView, table: pl.DataFrame, by: str) -> pl.DataFrame:
    """LAYER_KEY and the column of a table over layers, those at one position of a block as one row with their sum.

    It is called `24 x self_attn of layers.{0..23}` and has the index of the first of them.
    """
    members = frames.of_trace.once(repeated_blocks).with_columns(_AS_TEXT)
    if members.is_empty():
        return table
    rows = table.select(*LAYER_KEY, by).join(members, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")
    name = pl.format("{} x {} of {}", pl.len(), pl.col("position_name").first(), pl.col("block").first())
    folded = rows.filter(pl.col("block_index").is_not_null()).group_by("block_index", "position", maintain_order=True)
    each = folded.agg(
        pl.col("layer_index").min(),
        name.alias("layer_name"),
        pl.col("position_type").first().alias("layer_type"),
        known_sum(pl.col(by)),
    )
    outside = rows.filter(pl.col("block_index").is_null())
    columns = [*LAYER_KEY, by]
    return pl.concat([outside.select(columns), each.select(columns)]).sort(LAYER_KEY, nulls_last=True)


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
