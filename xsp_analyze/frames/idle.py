"""Why a device had nothing to do: what the host did before it launched what came next."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import run_starts
from xsp_model.intervals import covered_before, gaps, merge

if TYPE_CHECKING:
    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_model.arrays import Ints

__all__ = ["CAUSES", "idle_causes"]

CAUSES = ("idle_host_ns", "idle_sync_ns", "idle_launch_ns", "idle_unknown_ns")
"""What idle time divides into; see B03's columns."""

_NEVER = np.iinfo(np.int64).max


def idle_causes(frames: StepFrames, grouped: tuple[pl.DataFrame, Ints, Ints]) -> pl.DataFrame:
    """One row a group of the frames' activities (see `group_ids.groups`; run_id among its keys): CAUSES in ns.

    They are those of the gaps between the group's activities.
    """
    work = frames.activities
    rows, order, bounds = grouped
    start, duration = (work[c].to_numpy()[order] for c in ("start_ns", "duration_ns"))
    end, call = start + duration, work["call_start_ns"].fill_null(_NEVER).to_numpy()[order]
    waits = {
        run: merge(*(column.to_numpy() for column in frames.of_trace.waits(run))) for run in rows["run_id"].unique()
    }
    causes = [
        _causes(start[a:b], end[a:b], call[a:b], waits=waits[run])
        for (a, b), run in zip(pairwise(bounds.tolist()), rows["run_id"], strict=True)
    ]
    return pl.DataFrame(causes, schema=dict.fromkeys(CAUSES, pl.Int64), orient="row")


def _causes(start: Ints, end: Ints, call: Ints, *, waits: tuple[Ints, Ints]) -> tuple[int, ...]:
    """The sums over the gaps; a gap ends with the activity that begins then, of several the one launched first."""
    left, right = gaps(start, end)
    together = run_starts(start)  # activities stand in order of start
    launch = np.minimum.reduceat(call, together)[np.searchsorted(start[together], right)]
    has_launch = launch != _NEVER
    unknown = int((right - left)[~has_launch].sum())
    left, right, launch = left[has_launch], right[has_launch], launch[has_launch]
    launched = np.clip(launch, left, right)
    waited = covered_before(waits, launched) - covered_before(waits, left)
    return int((launched - left - waited).sum()), int(waited.sum()), int((right - launched).sum()), unknown
