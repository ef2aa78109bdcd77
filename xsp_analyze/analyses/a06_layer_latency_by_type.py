"""A06: latency of the layers of each type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import LATENCY, STEP, TYPE_KEY
from xsp_analyze.core import Column, FigureSpec, analysis
from xsp_analyze.formulas import ordered_sum, share_of_sum
from xsp_analyze.frames.layers.layer_time import layer_latencies

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_latency_by_type"]


@analysis(
    "A06",
    "layer latency by type",
    needs=("layer",),
    about_layers=True,
    additive=("latency_ns", "share"),
    read="The longest bar is the type of layer that is worth a better kernel, a fusion or another precision first.",
    columns=(STEP, TYPE_KEY, LATENCY, Column("share", pl.Float64(), "Of the sum over all layers.")),
    figure=FigureSpec("bars", x="layer_type", y=("latency_ns",), title="Latency by layer type"),
)
def layer_latency_by_type(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, longest first, then by name."""
    return (
        frames.once(layer_latencies)
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String), maintain_order=True)
        .agg(ordered_sum(pl.col("latency_ns")))
        .lazy()
        .with_columns(share_of_sum("latency_ns", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("latency_ns"), "layer_type")
    )
