"""How layer latencies vary over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import bootstrap_interval
from xsp_analyze.frames.layer_time import LAYER_KEY, layer_steps

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_intervals", "layer_quartiles"]


def layer_quartiles(frames: StepView) -> pl.DataFrame:
    """One row a layer of a mean step: min_ns, q1_ns, median_ns, q3_ns, max_ns over steps of all runs; else none."""
    latency = pl.col("latency_ns")
    at = (
        latency.min().cast(pl.Float64).alias("min_ns"),
        latency.quantile(0.25, "linear").alias("q1_ns"),
        latency.median().alias("median_ns"),
        latency.quantile(0.75, "linear").alias("q3_ns"),
        latency.max().cast(pl.Float64).alias("max_ns"),
    )
    return _averaged_steps(frames).group_by(LAYER_KEY, maintain_order=True).agg(at)


def layer_intervals(frames: StepView) -> pl.DataFrame:
    """One row a layer of a mean step: low_ns and high_ns, the 95 % interval of its latency; null where unknown.

    Known for layers of one run that are in at least three steps.
    """
    latency = pl.col("latency_ns")
    rows = (
        _averaged_steps(frames)
        .group_by(LAYER_KEY, maintain_order=True)
        .agg(latency, latency.len().alias("steps"), pl.col("run_id").n_unique().alias("runs"))
    )
    unknown = pl.lit(None, dtype=pl.Float64)
    parts = [rows.select(*LAYER_KEY, unknown.alias("low_ns"), unknown.alias("high_ns")).clear()]
    for part in rows.filter(pl.col("runs") == 1).partition_by("steps", maintain_order=True):
        low, high = bootstrap_interval(part["latency_ns"].list.to_array(part["steps"][0]).to_numpy())
        ends = pl.Series("low_ns", low).fill_nan(None), pl.Series("high_ns", high).fill_nan(None)
        parts.append(part.select(LAYER_KEY).with_columns(ends))
    return pl.concat(parts)


def _averaged_steps(frames: StepView) -> pl.DataFrame:
    steps = frames.chosen(frames.of_trace.once(layer_steps))
    return steps if frames.averaged else steps.clear()
