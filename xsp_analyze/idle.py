"""Why a device had nothing to do: what the host did before it launched what came next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.launches import waits_of
from xsp_model.intervals import covered_before, gaps, merge

if TYPE_CHECKING:
    from xsp_analyze.view import View
    from xsp_model.arrays import Ints

__all__ = ["CAUSES", "idle_causes"]

CAUSES = ("idle_host_ns", "idle_sync_ns", "idle_launch_ns", "idle_unknown_ns")
"""What idle time divides into; see B03's columns."""

_NEVER = np.iinfo(np.int64).max


def idle_causes(view: View, keys: list[str]) -> pl.DataFrame:
    """One row a value of the keys (run_id among them), in order: CAUSES in ns, over the gaps between its activities."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    rows = (
        view.activities.with_columns(end, pl.col("call_start_ns").fill_null(_NEVER))
        .group_by(keys)
        .agg("start_ns", "end_ns", "call_start_ns")
        .sort(keys, nulls_last=True)
    )
    runs = rows["run_id"].unique()
    waits = {run: merge(*(column.to_numpy() for column in waits_of(view.trace, run))) for run in runs}
    lists = ("start_ns", "end_ns", "call_start_ns")
    found = [
        _causes(*(rows[c][i].to_numpy() for c in lists), waits=waits[rows["run_id"][i]]) for i in range(rows.height)
    ]
    return rows.select(keys).hstack(pl.DataFrame(found, schema=dict.fromkeys(CAUSES, pl.Int64), orient="row"))


def _causes(start: Ints, end: Ints, call: Ints, *, waits: tuple[Ints, Ints]) -> tuple[int, ...]:
    """The sums over the gaps; a gap ends with the activity that begins then, of several the one launched first."""
    order = np.lexsort((call, start))
    left, right = gaps(start, end)
    launch = call[order][np.searchsorted(start[order], right)]
    known = launch != _NEVER
    left, right, launch, unknown = left[known], right[known], launch[known], int((right - left)[~known].sum())
    launched = np.clip(launch, left, right)
    waited = covered_before(waits, launched) - covered_before(waits, left)
    return int((launched - left - waited).sum()), int(waited.sum()), int((right - launched).sum()), unknown
