"""How a device's time divides into compute, communication, memory traffic and idle, in exact ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_model import Kind
from xsp_model.intervals import coverage_before, intersection, merge

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["MEASURES", "measures_in"]

MEASURES = (
    "window_ns",
    "active_ns",
    "busy_ns",
    "earlier_ns",
    "compute_ns",
    "communication_ns",
    "memory_ns",
    "compute_communication_ns",
    "exposed_communication_ns",
    "exposed_memory_ns",
)
"""What `measures_in` measures."""

_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_COMPUTE, _COMMUNICATION, _MEMORY = range(3)
_NONE = np.empty(0, dtype=np.int64)


def measures_in(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """MEASURES in ns for each window (begin_ns, end_ns, step) of a device from all its work, in order of start.

    Each is the length of a union of intervals within the window. `compute` is every kernel (or graph) that is not
    communication, `memory` copies and memsets. What is exposed runs while nothing earlier in that order does, so that
    busy = compute + exposed communication + exposed memory. `active` is from the first start to the last end of work;
    `earlier` the part of busy in which no work of the window's own step ran; 0 where the window is of no step.
    """
    start, end = work["start_ns"].to_numpy(), (work["start_ns"] + work["duration_ns"]).to_numpy()
    begin, until = windows["begin_ns"].to_numpy(), windows["end_ns"].to_numpy()
    unions = _unions(start, end, _categories(work))
    lengths = {name: coverage_before(u, until) - coverage_before(u, begin) for name, u in unions.items()}
    own = _own_busy(work, start, end, windows)
    busy = lengths["working"] + lengths["memory"] - lengths["hidden"]
    columns = {
        "window_ns": until - begin,
        "active_ns": _active(start, end, begin, until),
        "busy_ns": busy,
        "earlier_ns": np.where(own < 0, 0, busy - own),
        "compute_ns": lengths["compute"],
        "communication_ns": lengths["communication"],
        "memory_ns": lengths["memory"],
        "compute_communication_ns": lengths["both"],
        "exposed_communication_ns": lengths["communication"] - lengths["both"],
        "exposed_memory_ns": lengths["memory"] - lengths["hidden"],
    }
    return pl.DataFrame({name: columns[name] for name in MEASURES}, schema=dict.fromkeys(MEASURES, pl.Int64))


def _unions(start: Ints, end: Ints, category: Ints) -> dict[str, tuple[Ints, Ints]]:
    compute, communication, memory = (_union(start, end, category == c) for c in range(3))
    working = merge(np.concatenate((compute[0], communication[0])), np.concatenate((compute[1], communication[1])))
    return {
        "compute": compute,
        "communication": communication,
        "memory": memory,
        "working": working,
        "both": intersection(compute, communication),
        "hidden": intersection(working, memory),
    }


def _categories(activities: pl.DataFrame) -> Ints:
    """Which of the three each activity is."""
    is_copy = pl.col("kind").cast(pl.String).is_in(_COPIES)
    category = pl.when(is_copy).then(_MEMORY).when(IS_COMMUNICATION).then(_COMMUNICATION).otherwise(_COMPUTE)
    return activities.select(category.cast(pl.Int64)).to_series().to_numpy()


def _union(start: Ints, end: Ints, mask: Bools) -> tuple[Ints, Ints]:
    return merge(start[mask], end[mask])


def _active(start: Ints, end: Ints, begin: Ints, until: Ints) -> Ints:
    """From the first start to the last end of work in each window; work of no length counts as a point."""
    reach = np.maximum.accumulate(end)
    first = np.minimum(np.searchsorted(reach, begin, side="right"), np.searchsorted(start, begin, side="left"))
    last = np.searchsorted(start, until, side="right")
    some = first < last
    from_ns = np.maximum(start[np.minimum(first, len(start) - 1)], begin)
    to_ns = np.minimum(reach[np.maximum(last - 1, 0)], until)
    return np.where(some, np.maximum(to_ns - from_ns, 0), 0)


def _own_busy(work: pl.DataFrame, start: Ints, end: Ints, windows: pl.DataFrame) -> Ints:
    """Time of each window in which work of its own step ran; -1 where it is of no step."""
    own = np.full(windows.height, -1, dtype=np.int64)
    rows = dict(work.with_row_index("row").group_by("step").agg("row").iter_rows()) if work.height else {}
    for at, (step, begin, until) in enumerate(windows.select("step", "begin_ns", "end_ns").iter_rows()):
        if step is not None:
            of_step = np.asarray(rows.get(step, _NONE), dtype=np.int64)
            first, last = merge(np.maximum(start[of_step], begin), np.minimum(end[of_step], until))
            own[at] = int((last - first).sum())
    return own
