"""A05: how many layers there are of each type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP, TYPE_KEY
from xsp_analyze.core import Column, FigureSpec, analysis
from xsp_analyze.formulas import share_of_sum
from xsp_analyze.frames.layers.layer_time import layer_latencies

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_type_distribution"]


@analysis(
    "A05",
    "layer type distribution",
    needs=("layer",),
    about_layers=True,
    additive=("count", "share"),
    read="How often each type of layer occurs; compare with A06, as a frequent type need not be an expensive one.",
    columns=(
        STEP,
        TYPE_KEY,
        Column("count", pl.Int64(), "Layers of the type, however often each was called."),
        Column("share", pl.Float64(), "Of all layers."),
    ),
    figure=FigureSpec("bars", x="layer_type", y=("count",), title="Layers by type"),
)
def layer_type_distribution(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, most frequent first, then by name."""
    return (
        frames.once(layer_latencies)
        .lazy()
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String))
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .with_columns(share_of_sum("count", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("count"), "layer_type")
    )
