"""A13: how much of each layer is device time, and how much is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import KERNEL_DURATION, LAYER_INDEX, LAYER_LATENCY, LAYER_NAME, LAYER_TYPE, NON_KERNEL, STEP
from xsp_analyze.core import Column, FigureSpec, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.measured_work import layer_kernels

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["gpu_share_by_layer"]


@analysis(
    "A13",
    "GPU and non-GPU latency by layer",
    needs=("layer", "kernel"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("layer_latency_ns", "kernel_duration_ns", "non_kernel_ns"),
    read="A layer whose GPU share is small spends its time elsewhere: in launches, in synchronisation or in Python.",
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LAYER_LATENCY,
        KERNEL_DURATION,
        NON_KERNEL,
        Column("kernel_share", pl.Float64(), "Kernel duration over layer latency; above 1 where kernels outlast it."),
        Column("non_kernel_share", pl.Float64(), "What is left of 1; negative where kernels outlast the layer."),
    ),
    figure=FigureSpec(
        "stacked_bars",
        x="layer_index",
        y=("kernel_share", "non_kernel_share"),
        title="GPU and non-GPU share of each layer's latency",
    ),
)
def gpu_share_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order."""
    latency, kernels = pl.col("layer_latency_ns"), pl.col("kernel_duration_ns")
    return (
        layer_kernels(frames)
        .filter(latency.is_not_null())
        .with_columns(pl.when(latency > 0).then(quotient(kernels, latency)).alias("kernel_share"))
        .with_columns((1 - pl.col("kernel_share")).alias("non_kernel_share"))
    )
