"""A14: every layer under the roof of the devices that ran it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.columns import KERNEL_DURATION, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, PRECISION, ROOF_COLUMNS, STEP
from xsp_analyze.core import FigureSpec, analysis
from xsp_analyze.frames.kernels.measured_work import filled_executions, layer_kernels
from xsp_analyze.frames.kernels.roofline import agreed_peaks, by_precision, require_flops, under_roof
from xsp_analyze.frames.layers.layer_time import LAYER_KEY

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["layer_roofline"]


@analysis(
    "A14",
    "layer roofline",
    needs=("layer", "kernel", "work"),
    key=("layer_index", "layer_name", "layer_type", "precision"),
    about_layers=True,
    section="rooflines",
    read=(
        "Layers left of the ridge gain from fusion and smaller types, layers right of it from tensor cores and "
        "better kernels."
    ),
    columns=(STEP, LAYER_INDEX, LAYER_NAME, PRECISION, LAYER_TYPE, KERNEL_DURATION, *ROOF_COLUMNS),
    figure=FigureSpec(
        "roofline", x="arithmetic_intensity", y=("flop_per_s",), title="Layers under the roof", color="precision"
    ),
)
def layer_roofline(frames: StepView) -> pl.LazyFrame:
    """One row a layer and precision that its kernels work in, in order; work without a layer, as in A11, last."""
    require_flops(frames.once(filled_executions), "A14 (layer roofline)")
    keys = [*frames.by, *LAYER_KEY]
    rows = by_precision(layer_kernels(frames, filled=True).collect())
    return under_roof(rows, agreed_peaks(frames)).sort(*keys, "place", nulls_last=True).lazy()
