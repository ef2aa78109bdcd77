"""Which layer a process was in at any time: of the calls running on its threads, the one that began last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.frames.group_ids import in_order, run_starts

if TYPE_CHECKING:
    import polars as pl

    from xsp_model.columns.arrays import Ints

__all__ = ["innermost_calls", "overlaps"]


def innermost_calls(calls: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Start, end and row (in `calls`) of every stretch of time that is some call's, in order, without overlap.

    `calls` has start_ns and end_ns. A stretch ends wherever any call begins or ends.
    """
    order = in_order([calls["start_ns"], -calls["end_ns"]])
    start, end = calls["start_ns"].to_numpy()[order], calls["end_ns"].to_numpy()[order]
    edges = np.concatenate((start, end))
    edges.sort()
    edges = edges[run_starts(edges)]  # numpy's unique is slower
    left, right = edges[:-1], edges[1:]
    call = np.searchsorted(start, left, side="right") - 1
    longer = _longer_before(end)
    ended = np.flatnonzero(end[call] <= left) if len(call) else call
    while len(ended):
        call[ended] = longer[call[ended]]
        ended = ended[call[ended] >= 0]
        ended = ended[end[call[ended]] <= left[ended]]
    covered = np.flatnonzero(call >= 0)
    return left[covered], right[covered], order[call[covered]]


def _longer_before(end: Ints) -> Ints:
    """For each call, in order of start, the last one before it that ends later, or -1."""
    longer = np.arange(-1, len(end) - 1, dtype=np.int64)
    shorter = np.flatnonzero(end[longer[1:]] <= end[1:]) + 1 if len(end) else longer
    while len(shorter):
        longer[shorter] = longer[longer[shorter]]  # what lies between ends no later than the one passed over
        shorter = shorter[longer[shorter] >= 0]
        shorter = shorter[end[longer[shorter]] <= end[shorter]]
    return longer


def overlaps(stretches: tuple[Ints, Ints, Ints], start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """How long each call's stretches overlap each interval: rows, -1 for what no call covers, and ns; none of 0."""
    left, right, rows = stretches
    first = np.searchsorted(right, start_ns, side="right")
    count = np.searchsorted(left, end_ns, side="left") - first
    interval = np.repeat(np.arange(len(start_ns)), count)
    at = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count, count) + first[interval]
    shared = np.minimum(right[at], end_ns[interval]) - np.maximum(left[at], start_ns[interval])
    rest = end_ns - start_ns
    np.subtract.at(rest, interval, shared)
    row = np.concatenate((rows[at], np.full(len(rest), -1, dtype=np.int64)))
    shared = np.concatenate((shared, rest))
    kept = shared != 0
    return row[kept], shared[kept]
