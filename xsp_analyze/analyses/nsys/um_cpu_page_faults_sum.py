"""`nsys stats`' summary of the host's faults on unified memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.core import analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["um_cpu_page_faults_sum"]


@analysis(
    "um_cpu_page_faults_sum",
    "Page faults of the host",
    needs=("unified memory",),
    columns=(
        integer("count", "Faults.", "CPU Page Faults"),
        name_column("instruction", "The instruction, as the profiler names it.", "CPU Instruction Address"),
    ),
    by_step=False,
)
def um_cpu_page_faults_sum(frames: StepView) -> pl.LazyFrame:
    """One row an instruction of the host that missed pages of unified memory, most faults first, then by name."""
    faults = frames.of_trace.kernel_runs.scan("page_faults").filter(pl.col("device_id").is_null())
    rows = faults.group_by("instruction").agg(pl.col("count").sum())
    return rows.sort(-pl.col("count"), "instruction", nulls_last=True)
