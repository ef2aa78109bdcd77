"""A11: device time of each layer beside its latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.columns import (
    COUNTER_COLUMNS,
    KERNEL_DURATION,
    KERNELS,
    LAYER_INDEX,
    LAYER_LATENCY,
    LAYER_NAME,
    LAYER_TYPE,
    NON_KERNEL,
    STEP,
)
from xsp_analyze.core import analysis
from xsp_analyze.frames.kernels.activities import derived_counters
from xsp_analyze.frames.kernels.measured_work import layer_kernels
from xsp_analyze.frames.kernels.roofline import ideal_intensity

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_by_layer"]


@analysis(
    "A11",
    "kernels by layer",
    needs=("layer", "kernel"),
    key=("layer_index", "layer_name", "layer_type"),
    about_layers=True,
    additive=(
        "layer_latency_ns",
        "kernel_count",
        "kernel_duration_ns",
        "non_kernel_ns",
        "flop_count",
        "dram_read_bytes",
        "dram_write_bytes",
    ),
    read="Where kernel duration is much less than the layer's latency, the device waited in that layer.",
    columns=(
        STEP,
        LAYER_INDEX,
        LAYER_NAME,
        LAYER_TYPE,
        LAYER_LATENCY,
        KERNELS,
        KERNEL_DURATION,
        NON_KERNEL,
        *COUNTER_COLUMNS,
    ),
)
def kernel_by_layer(frames: StepView) -> pl.LazyFrame:
    """One row a layer, in order; graph replays that no layer can be given for come last, in a row without index."""
    return derived_counters(layer_kernels(frames), frames.of_trace.once(ideal_intensity))
