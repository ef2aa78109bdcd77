"""A07: memory that the layers of each type allocate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import ALLOCATED, STEP, TYPE_KEY
from xsp_analyze.core import Column, FigureSpec, analysis
from xsp_analyze.formulas import known_sum, share_of_sum
from xsp_analyze.frames.layers.layer_time import layer_latencies

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_memory_by_type"]


@analysis(
    "A07",
    "layer memory by type",
    needs=("layer",),
    about_layers=True,
    additive=("allocated_bytes", "share"),
    read="The longest bar is the type of layer that holds most of the memory allocated.",
    columns=(STEP, TYPE_KEY, ALLOCATED, Column("share", pl.Float64(), "Of the sum over all layers.")),
    figure=FigureSpec("bars", x="layer_type", y=("allocated_bytes",), title="Memory allocated by layer type"),
)
def layer_memory_by_type(frames: StepView) -> pl.LazyFrame:
    """One row a layer type, most memory first, unknown last, then by name."""
    return (
        frames.once(layer_latencies)
        .group_by(*frames.by, pl.col("layer_type").cast(pl.String), maintain_order=True)
        .agg(known_sum(pl.col("allocated_bytes")).alias("allocated_bytes"))
        .lazy()
        .with_columns(share_of_sum("allocated_bytes", frames.by).alias("share"))
        .sort(*frames.by, -pl.col("allocated_bytes"), "layer_type", nulls_last=True)
    )
