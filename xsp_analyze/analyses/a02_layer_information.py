"""A02: what each layer is, how long it takes and what it allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import ALLOCATED, LATENCY, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, MODEL_SHARE, STEP
from xsp_analyze.core import AMOUNT, Column, Role, analysis
from xsp_analyze.formulas import ratio
from xsp_analyze.frames.layers.layer_time import LAYER_KEY, layer_intervals, layer_latencies
from xsp_analyze.frames.model_time import with_model_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_information"]


@analysis(
    "A02",
    "layer information",
    needs=("layer",),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("call_count", "latency_ns", "model_share", "allocated_bytes"),
    read=(
        "Sort by latency to see which layers matter, and look at the interval before you trust a difference "
        "between two of them."
    ),
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        Column("path", pl.String(), "Names from the outermost enclosing layer down to it.", role=Role.LABEL),
        Column("shapes", pl.String(), "Input shapes of its first operator, as JSON; null: unknown.", role=Role.LABEL),
        Column("dtypes", pl.String(), "Input types of its first operator, as JSON; null: unknown.", role=Role.LABEL),
        Column("call_count", AMOUNT, "Its calls; in a mean step, per step on average."),
        LATENCY,
        Column(
            "low_ns", pl.Float64(), "Lower end of the 95 % bootstrap interval of latency; null below 3 steps.", "ns"
        ),
        Column("high_ns", pl.Float64(), "Upper end of that interval.", "ns"),
        MODEL_SHARE,
        ALLOCATED,
    ),
)
def layer_information(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order of first own operator."""
    rows = frames.once(layer_latencies).join(
        layer_intervals(frames), on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    return (
        with_model_time(frames, rows.lazy())
        .with_columns(
            pl.col("layer_name", "layer_type", "path").cast(pl.String),
            ratio(pl.col("latency_ns"), pl.col("model_ns")).alias("model_share"),
        )
        .sort(*frames.by, *LAYER_KEY, nulls_last=True)
    )
