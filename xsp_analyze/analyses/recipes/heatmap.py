"""The use of each device over the capture, in thirty equal bins, as the recipes' heat maps draw it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.analyses.nsys.sources import kernels
from xsp_analyze.analyses.recipes.busy import covered, merged
from xsp_analyze.analyses.recipes.operations import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Floats

__all__ = ["BINS", "Session", "bins", "sessions", "stamped_kernels"]

BINS = 30  # the recipes' default
_DURATION = "capture_duration_ns"


@dataclass(frozen=True, slots=True)
class Session:
    """One run's capture on the clock of the earliest one: from `start_ns` to `end_ns`; the bins are of all runs."""

    origin_ns: int  # added to the trace's times gives that clock
    start_ns: int
    end_ns: int
    bin_ns: int


def sessions(view: TraceView) -> Mapping[int, Session]:
    """The capture of each run; where the file does not say how long it was, up to the last end of a span."""
    runs = view.timed_runs.table.select("run_id", "clock_origin_ns", "epoch_ns")
    durations = view.timed_runs.scan("counters").filter(pl.col("counter").cast(pl.String) == _DURATION)
    recorded = dict(durations.select("run_id", pl.col("value").cast(pl.Int64)).collect().iter_rows())
    ends = view.timed_runs.scan("spans").group_by("run_id").agg(
        (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).max()
    )  # fmt: skip
    last = dict(ends.collect().iter_rows())
    # Unix time at the clock's own 0; where it is not known, the runs are taken to have begun together.
    began = {run: 0 if epoch is None else epoch - origin for run, origin, epoch in runs.iter_rows()}
    first = min(began.values(), default=0)
    extents = {}
    for run, origin, _ in runs.iter_rows():
        start = began[run] - first
        length = recorded.get(run, (last.get(run) or 0) + origin)
        extents[run] = (origin + start, start, start + length)
    size = math.ceil(max((end for _, _, end in extents.values()), default=0) / BINS) or 1
    return {run: Session(origin, start, end, size) for run, (origin, start, end) in extents.items()}


def stamped_kernels(view: TraceView) -> list[pl.DataFrame]:
    """The kernels of each device in a process: GPU, start_ns and end_ns on the trace's own clock, and name."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    stamped = kernels(view).select(*GPU, "name", "start_ns", end).sort(*GPU, "start_ns")
    return stamped.collect().partition_by(GPU, maintain_order=True)


def bins(rows: pl.DataFrame, session: Session) -> Floats:
    """The part of each bin in which at least one row ran, 0..1; NaN outside the run's capture."""
    start, end = merged(rows["start_ns"].to_numpy() + session.origin_ns, rows["end_ns"].to_numpy() + session.origin_ns)
    edges = session.bin_ns * np.arange(BINS + 1, dtype=np.int64)
    # Of the bins in which the capture began and ended only the part inside it counts.
    inside = np.diff(np.clip(edges, session.start_ns, session.end_ns))
    used = covered(start, end, edges)
    return np.where(inside > 0, used / np.maximum(inside, 1), np.nan)
