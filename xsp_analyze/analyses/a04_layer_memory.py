"""A04: memory that each layer allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import ALLOCATED, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP
from xsp_analyze.core import FigureSpec, analysis
from xsp_analyze.frames.layers.layer_time import layer_latencies

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_memory"]


@analysis(
    "A04",
    "layer memory",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("allocated_bytes",),
    read=(
        "Tall bars are the layers whose activations fill the memory; they are the candidates for checkpointing or "
        "for a smaller batch."
    ),
    columns=(STEP, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, ALLOCATED),
    figure=FigureSpec(
        "bars", x="layer_index", y=("allocated_bytes",), title="Memory allocated by layer", color="layer_type"
    ),
)
def layer_memory(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator."""
    return frames.once(layer_latencies).lazy().with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
