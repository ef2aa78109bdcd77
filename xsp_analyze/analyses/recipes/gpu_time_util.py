"""`nsys analyze` rule and `nsys recipe` gpu_time_util: stretches in which a GPU was used little of the time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer
from xsp_analyze.analyses.recipes.busy import covered
from xsp_analyze.analyses.recipes.operations import GPU, operations
from xsp_analyze.core import Column, Role, analysis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["gpu_time_util"]

_CHUNKS = 30  # the rule's defaults
_LOW = 0.5
_DECIMALS = 3  # of a share: one of a percentage, by which the rule sorts
_SCHEMA = {
    **dict.fromkeys((*GPU, "context_id"), pl.Int64),
    "share": pl.Float64,
    "duration_ns": pl.Int64,
    "start_ns": pl.Int64,
}


def table(view: TraceView) -> pl.LazyFrame:
    """The rule's rows."""
    groups = operations(view).sort(*GPU, "start_ns").collect().partition_by(GPU, maintain_order=True)
    rows = [row for group in groups for row in _low(group)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row").lazy()
    ordered = frame.sort(pl.col("share").round(_DECIMALS), "duration_ns", "start_ns", *GPU)
    return ordered.with_row_index("row_number", offset=1).with_columns(pl.col("row_number").cast(pl.Int64))


def _low(group: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Runs of neighbouring chunks of a device's time that are each used less than half."""
    start, end = group["start_ns"].to_numpy(), group["end_ns"].to_numpy()
    first, last = int(start.min()), int(end.max())
    size = math.ceil((last - first) / _CHUNKS)
    edges = np.minimum(first + size * np.arange(_CHUNKS + 1, dtype=np.int64), last)
    lengths = np.diff(edges)
    used = covered(start, end, edges)
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
    return table(frames.of_trace)
