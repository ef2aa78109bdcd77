"""A03: latency of each layer and its spread over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import LATENCY, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP
from xsp_analyze.core import Column, FigureSpec, analysis
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_latencies, layer_quartiles

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_latency"]


def _spread(name: str, what: str) -> Column:
    return Column(name, pl.Float64(), f"{what} over steps (of all runs); null where no steps are averaged.", "ns")


@analysis(
    "A03",
    "layer latency",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("latency_ns",),
    read=(
        "Tall bars are the layers to work on; a wide gap between minimum and maximum says that a layer's time "
        "changes from step to step."
    ),
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LATENCY,
        _spread("min_ns", "Least"),
        _spread("q1_ns", "First quartile"),
        _spread("median_ns", "Median"),
        _spread("q3_ns", "Third quartile"),
        _spread("max_ns", "Most"),
    ),
    figure=FigureSpec(
        "bars",
        x="layer_index",
        y=("latency_ns",),
        title="Latency by layer",
        color="layer_type",
        spread=("min_ns", "q1_ns", "q3_ns", "max_ns"),
    ),
)
def layer_latency(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator."""
    rows = frames.once(layer_latencies).join(layer_quartiles(frames), on=LAYER_KEY, how="left", nulls_equal=True)
    return (
        rows.lazy()
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .sort(*frames.by, *LAYER_KEY, nulls_last=True)
    )
