"""`nsys recipe` nvtx_gpu_proj_pace: how regularly the work of each named range comes again on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.recipes.common import closed_ranges
from xsp_analyze.analyses.recipes.pace import pace, pace_columns
from xsp_analyze.analyses.recipes.projected import project
from xsp_analyze.core import analysis
from xsp_model import Kind

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_gpu_proj_pace"]

_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


def table(view: TraceView) -> pl.LazyFrame:
    """The recipe's rows, for every range."""
    return pace(view, project(view, closed_ranges(view), _KINDS).rename({"text": "name"}))


@analysis(
    "nvtx_gpu_proj_pace",
    "Pace of named ranges on the device",
    needs=("ranges", "runtime", "kernel"),
    columns=pace_columns("range, whatever its domain", device=True),
    by_step=False,
)
def nvtx_gpu_proj_pace(frames: StepView) -> pl.LazyFrame:
    """One row a range that launched work, by name and run in order of launch; the recipe gives those of one name."""
    return table(frames.of_trace)
