"""`nsys stats`' NVTX GPU projection summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.projection import PROJECTION_READS, projected
from xsp_analyze.analyses.nsys.statistics import integer, name_column, spread, spread_columns
from xsp_analyze.core import Column, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["nvtx_gpu_proj_sum"]

_KEYS = ["range_name", "style"]
_TIMES = ("start_ns", "end_ns", "projected_start_ns", "projected_end_ns")
_COLUMNS = (*_KEYS, *_TIMES, "operation_count", "depth", "child_count")


def table(view: TraceView) -> pl.LazyFrame:
    """The report's rows."""
    rows = projected(view, _COLUMNS).lazy().filter(pl.col("range_name").is_not_null())
    sums = (
        rows.with_columns((pl.col("projected_end_ns") - pl.col("projected_start_ns")).alias("projected"))
        .group_by(_KEYS)
        .agg(
            pl.col("projected").sum().alias("projected_ns"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("range_ns"),
            pl.len().cast(pl.Int64).alias("count"),
            *spread("projected", "projected_"),
            pl.col("operation_count").sum(),
            pl.col("operation_count").mean().alias("mean_operations"),
            pl.col("depth").mean().alias("mean_depth"),
            pl.col("child_count").mean().alias("mean_children"),
        )
    )
    return sums.sort(-pl.col("projected_ns"), *_KEYS)


def _mean(name: str, doc: str, header: str) -> Column:
    return Column(name, pl.Float64(), doc, header=header, decimals=1)


@analysis(
    "nvtx_gpu_proj_sum",
    "NVTX GPU projection summary",
    needs=("ranges", "runtime", "kernel"),
    reads=PROJECTION_READS,
    columns=(
        name_column("range_name", "Name of the range, after its domain if it has one.", "Range"),
        name_column("style", "PushPop, StartEnd or Annotation.", "Style"),
        integer("projected_ns", "Sum of the projected durations.", "Total Proj Time (ns)", unit="ns"),
        integer("range_ns", "Sum of the durations on the host.", "Total Range Time (ns)", unit="ns"),
        integer("count", "Ranges that launched device work.", "Range Instances"),
        *spread_columns("the projected durations", heading="Proj ", prefix="projected_"),
        integer("operation_count", "Launches inside that put work on a device.", "Total GPU Ops"),
        _mean("mean_operations", "Mean number of these.", "Avg GPU Ops"),
        _mean("mean_depth", "Mean number of ranges around.", "Avg Range Lvl"),
        _mean("mean_children", "Mean number of ranges directly inside that launched work.", "Avg Num Child"),
    ),
    by_step=False,
)
def nvtx_gpu_proj_sum(frames: StepView) -> pl.LazyFrame:
    """One row a range name and style, most projected time first, then by name."""
    return table(frames.of_trace)
