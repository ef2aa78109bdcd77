"""`nsys analyze` rule and `nsys recipe` gpu_gaps: when a GPU had nothing to do for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer
from xsp_analyze.analyses.recipes.operations import GPU, operations
from xsp_analyze.core import Role, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["gpu_gaps"]

_LONGEST_NS = 500_000_000  # the rule's default for `gap`


def table(view: TraceView, longer_than_ns: int = _LONGEST_NS) -> pl.LazyFrame:
    """The rule's rows, for gaps longer than so much."""
    work = operations(view)
    # The n-th end and the start after n starts: where the one comes first, nothing ran in between.
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(GPU).alias("number")
    starts = work.sort(*GPU, "start_ns").select(*GPU, pl.col("start_ns").alias("next_ns"), number - 1)
    ends = work.sort(*GPU, "end_ns").select(*GPU, "context_id", pl.col("end_ns").alias("start_ns"), number)
    gaps = ends.join(starts, on=[*GPU, "number"], nulls_equal=True).with_columns(
        (pl.col("next_ns") - pl.col("start_ns")).alias("duration_ns")
    )
    long_gaps = gaps.filter(pl.col("duration_ns") > longer_than_ns)
    return long_gaps.sort(-pl.col("duration_ns"), "start_ns", *GPU).with_row_index("row_number", offset=1)


@analysis(
    "gpu_gaps",
    "GPU gaps of more than 500 ms",
    needs=("kernel",),
    columns=(
        integer("row_number", "Number of the gap.", "Row#", role=Role.KEY),
        integer(
            "duration_ns", "Time without kernel, copy, memset or profiling overhead; over 500 ms.", "Duration (ns)",
            unit="ns",
        ),
        integer("start_ns", "When it began, on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("device_id", "The device.", "Device ID", role=Role.LABEL),
        integer("context_id", "The context that had worked last.", "Context ID", role=Role.LABEL),
    ),
    by_step=False,
)  # fmt: skip
def gpu_gaps(frames: StepView) -> pl.LazyFrame:
    """One row a gap between the first and the last operation of a device in a process, longest first."""
    return table(frames.of_trace).with_columns(pl.col("row_number").cast(pl.Int64))
