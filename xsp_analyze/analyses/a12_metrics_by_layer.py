"""A12: flop and memory traffic of each layer, as counters measured them or else as modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.columns import FILLED_COLUMNS, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, STEP, WORK_BASIS
from xsp_analyze.core import FigureSpec, analysis
from xsp_analyze.frames.kernels.measured_work import layer_kernels

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["metrics_by_layer"]


@analysis(
    "A12",
    "metrics by layer",
    needs=("layer", "kernel", "work"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=("flop_count", "dram_read_bytes", "dram_write_bytes"),
    read="Compare flops with bytes: a layer with much traffic and few flops is bound by memory.",
    columns=(STEP, LAYER_INDEX, LAYER_NAME, LAYER_TYPE, *FILLED_COLUMNS[:4], WORK_BASIS),
    figure=FigureSpec(
        "bars",
        x="layer_index",
        y=("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy"),
        title="Flops, DRAM traffic and occupancy by layer",
    ),
)
def metrics_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order; graph replays that no layer can be given for come last, in a row without index."""
    return layer_kernels(frames, filled=True)
