"""A09: every kernel execution under the roof of its device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.analyses.a08_kernel_information import listed, listed_order
from xsp_analyze.columns import (
    DURATION,
    EXECUTION,
    KERNEL_CLASS,
    KERNEL_LABEL,
    KERNEL_NAME,
    LAYER_INDEX,
    LAYER_NAME,
    PRECISION,
    ROOF_COLUMNS,
    STEP,
)
from xsp_analyze.core import FigureSpec, Role, analysis
from xsp_analyze.frames.kernels.measured_work import filled_executions
from xsp_analyze.frames.kernels.roofline import DEVICE, by_precision, device_peaks, require_flops, under_roof

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernel_roofline"]


@analysis(
    "A09",
    "kernel roofline",
    needs=("kernel", "work"),
    section="rooflines",
    read=(
        "Points far below the roof leave speed unused; points left of the ridge are limited by memory bandwidth, "
        "points right of it by arithmetic."
    ),
    columns=(
        STEP,
        replace(EXECUTION, doc="The kernel's row in A08."),
        PRECISION,
        replace(LAYER_INDEX, role=Role.LABEL),
        LAYER_NAME,
        replace(KERNEL_NAME, role=Role.LABEL),
        KERNEL_LABEL,
        KERNEL_CLASS,
        replace(DURATION, doc="Its duration, as in A08."),
        *ROOF_COLUMNS,
    ),
    figure=FigureSpec(
        "roofline", x="arithmetic_intensity", y=("flop_per_s",), title="Kernels under the roof", color="precision"
    ),
)
def kernel_roofline(frames: StepView) -> pl.LazyFrame:
    """One row a kernel execution and precision that it works in, in the order of A08."""
    executions = frames.once(filled_executions)
    require_flops(executions, "A09 (kernel roofline)")
    order = listed_order(frames)
    rows = by_precision(listed(frames, executions[order], np.arange(len(order))).collect())
    return under_roof(rows, device_peaks(frames), on=DEVICE).sort("execution", "place").lazy()
