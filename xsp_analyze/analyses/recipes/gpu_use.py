"""When a GPU had nothing to do for long or was used little, as two rules of `nsys analyze` and recipes have it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import WORK_KINDS, on_source_clock
from xsp_analyze.analyses.nsys.statistics import integer
from xsp_analyze.core import Column, Role, analysis
from xsp_model.columns.intervals import FARTHEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Ints

__all__ = ["GPU", "gaps_longer_than", "gpu_gaps", "gpu_time_util", "merged_stretches", "time_inside"]

# How much of a window stretches take up, in closed form over many windows at once.


def time_inside(start: Ints, end: Ints, edges: Ints) -> Ints:
    """For each window between neighbouring edges the sum of what each stretch has inside it; overlaps count again."""
    before = _sum_before(np.sort(start), edges) - _sum_before(np.sort(end), edges)
    return np.diff(before)


def _sum_before(moments: Ints, edges: Ints) -> Ints:
    """For each edge the sum of its distances from the moments before it."""
    sums = np.concatenate(([0], np.cumsum(moments - moments[0] if len(moments) else moments)))
    count = np.searchsorted(moments, edges, side="left")
    first = moments[0] if len(moments) else 0
    return count * (edges - first) - sums[count]


def merged_stretches(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The stretches with those that overlap or touch made one, in order of start."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    begun, reach = start[order], np.maximum.accumulate(end[order])
    new = np.concatenate(([True], begun[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(begun) - 1]))
    return begun[new], reach[last]


# What keeps a GPU busy in the sense of nsys' rules: kernels, copies, memsets, and profiling overhead between them.

GPU = ("run_id", "process_id", "device_id")
"""What one row of the rules is about: a device in a process of a run."""
_OVERHEAD = "cuda_profiling_overhead_ns"


def _operations(view: TraceView) -> pl.LazyFrame:
    """One row an operation: GPU, context_id, start_ns and end_ns as the profiler stamped them.

    Overhead that lies wholly between the first and the last operation of a device counts as one.
    """
    spans = view.kernel_runs.scan("spans").filter(pl.col("kind").cast(pl.String).is_in(WORK_KINDS))
    stamped = on_source_clock(view, spans.select(*GPU, "context_id", "start_ns", "duration_ns"), ("start_ns",))
    work = stamped.filter(pl.col("start_ns") > 0, pl.col("duration_ns").is_not_null()).with_columns(
        (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    )
    work = work.drop("duration_ns")
    return pl.concat([work, _overhead(view, work)])


def _overhead(view: TraceView, work: pl.LazyFrame) -> pl.LazyFrame:
    is_duration = (pl.col("counter").cast(pl.String) == _OVERHEAD) & (pl.col("value") < FARTHEST_NS)
    counters = view.kernel_runs.scan("counters").filter(is_duration)
    stamped = on_source_clock(view, counters, ("time_ns",)).select(
        "run_id",
        "device_id",
        pl.col("time_ns").alias("start_ns"),
        (pl.col("time_ns") + pl.col("value").cast(pl.Int64)).alias("end_ns"),
    )
    windows = work.group_by(GPU).agg(
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("end_ns").max().alias("last_ns"),
        pl.col("context_id").sort_by("end_ns").last(),
    )
    inside = stamped.join(windows, on=["run_id", "device_id"]).filter(
        pl.col("start_ns") > pl.col("first_ns"), pl.col("end_ns") < pl.col("last_ns")
    )
    return inside.select(*GPU, "context_id", "start_ns", "end_ns")


_LONGEST_NS = 500_000_000  # the rule's default for `gap`


def gaps_longer_than(view: TraceView, length_ns: int) -> pl.LazyFrame:
    """The rows of the rule `gpu_gaps` with this `gap`."""
    work = _operations(view)
    # The n-th end and the start after n starts: where the one comes first, nothing ran in between.
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(GPU).alias("number")
    starts = work.sort(*GPU, "start_ns").select(*GPU, pl.col("start_ns").alias("next_ns"), number - 1)
    ends = work.sort(*GPU, "end_ns").select(*GPU, "context_id", pl.col("end_ns").alias("start_ns"), number)
    gaps = ends.join(starts, on=[*GPU, "number"], nulls_equal=True).with_columns(
        (pl.col("next_ns") - pl.col("start_ns")).alias("duration_ns")
    )
    long_gaps = gaps.filter(pl.col("duration_ns") > length_ns)
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
    return gaps_longer_than(frames.of_trace, _LONGEST_NS).with_columns(pl.col("row_number").cast(pl.Int64))


_CHUNKS = 30  # the rule's defaults
_LOW = 0.5
_DECIMALS = 3  # of a share: one of a percentage, by which the rule sorts
_SCHEMA = {
    **dict.fromkeys((*GPU, "context_id"), pl.Int64),
    "share": pl.Float64,
    "duration_ns": pl.Int64,
    "start_ns": pl.Int64,
}


def _stretches_of_low_use(group: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Runs of neighbouring chunks of a device's time that are each used less than half."""
    start, end = group["start_ns"].to_numpy(), group["end_ns"].to_numpy()
    first, last = int(start.min()), int(end.max())
    size = math.ceil((last - first) / _CHUNKS)
    edges = np.minimum(first + size * np.arange(_CHUNKS + 1, dtype=np.int64), last)
    lengths = np.diff(edges)
    used = time_inside(start, end, edges)
    low = np.flatnonzero((lengths > 0) & (used < _LOW * lengths))
    keys = [group[name][0] for name in GPU]
    for run in np.split(low, np.flatnonzero(np.diff(low) != 1) + 1):
        if len(run):
            begin, over = int(edges[run[0]]), int(edges[run[-1] + 1])
            context = group["context_id"][int(np.argmax(end))]
            yield (*keys, context, float(used[run].sum() / lengths[run].sum()), over - begin, begin)


@analysis(
    "gpu_time_util",
    "Stretches of low GPU use",
    needs=("kernel",),
    columns=(
        integer("row_number", "Number of the stretch.", "Row#", role=Role.KEY),
        Column(
            "share",
            pl.Float64(),
            "Part of the stretch in which operations ran, those at once added up; under 0.5 in each thirtieth of the "
            "device's time that it is made of.",
            "share",
            header="In-Use (%)",
            decimals=1,
        ),
        integer("duration_ns", "How long it was.", "Duration (ns)", unit="ns"),
        integer("start_ns", "When it began, on the profiler's own clock.", "Start (ns)", unit="ns"),
        integer("process_id", "The process.", "PID", role=Role.LABEL),
        integer("device_id", "The device.", "Device ID", role=Role.LABEL),
        integer("context_id", "A context of the device.", "Context ID", role=Role.LABEL),
    ),
    by_step=False,
)
def gpu_time_util(frames: StepView) -> pl.LazyFrame:
    """One row a stretch between the first and the last operation of a device in a process, least used first."""
    groups = _operations(frames.of_trace).sort(*GPU, "start_ns").collect().partition_by(GPU, maintain_order=True)
    rows = [row for group in groups for row in _stretches_of_low_use(group)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row").lazy()
    ordered = frame.sort(pl.col("share").round(_DECIMALS), "duration_ns", "start_ns", *GPU)
    return ordered.with_row_index("row_number", offset=1).with_columns(pl.col("row_number").cast(pl.Int64))
