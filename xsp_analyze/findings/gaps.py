"""When none of a run's devices worked, and how much of that lies in or after what the host did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model.intervals import coverage_before, gaps, intersection, merge, union_length

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

    Intervals = tuple[Ints, Ints]

__all__ = ["Gaps", "gaps_of"]


@dataclass(frozen=True)
class Gaps:
    """Stretches in order, in ns; `inner`: those with device work before and after them."""

    first: Ints
    last: Ints
    inner: Bools

    def within(self, spans: Intervals) -> int:
        """What lies within the spans."""
        return union_length(*intersection((self.first, self.last), merge(*spans)))

    def after(self, calls: Intervals, *, without: Intervals) -> int:
        """What lies between the end of the first call that ends in a gap, and the gap's end, but not within the others.

        Of each gap no more than the call took: had it not been made, the host would have been earlier by that. Calls
        before the first device work, or after the last, held up nothing.
        """
        first, last = self.first[self.inner], self.last[self.inner]
        order = np.argsort(calls[1], kind="stable")
        ends, lengths = calls[1][order], (calls[1] - calls[0])[order]
        index = np.searchsorted(ends, first)
        index, last = index[index < len(ends)], last[index < len(ends)]
        inside = ends[index] < last
        index, last = index[inside], last[inside]
        return int(np.minimum(_lengths_without(ends[index], last, without), lengths[index]).sum())

    def short(self, longest_ns: int, held_up: Intervals) -> int:
        """The inner gaps that are no longer than that and meet none of the spans."""
        first, last = self.first[self.inner], self.last[self.inner]
        free = last - first <= longest_ns
        if len(held_up[0]):
            starts, ends = merge(*held_up)
            next_one = np.searchsorted(ends, first, side="right")
            met = next_one < len(starts)
            met[met] = starts[next_one[met]] < last[met]
            free &= ~met
        return int((last - first)[free].sum())


def gaps_of(work: pl.DataFrame, windows: pl.DataFrame, run_id: int) -> Gaps:
    """The gaps of the run's device work inside its windows (run_id, start_ns, end_ns).

    Of all devices together, and of every window: what device time is idle for (`frames/idle.py`) is a device's, of the
    steps that a trimmed mean keeps, and a step that recompiles is none of these.
    """
    rows = work.filter(pl.col("run_id") == run_id)
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    own = windows.filter(pl.col("run_id") == run_id)
    inside = merge(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
    bounds = np.array([inside[0].min(), inside[1].max()]) if len(inside[0]) else np.empty(0, dtype=np.int64)
    first, last = intersection(gaps(np.concatenate((start, bounds)), np.concatenate((end, bounds))), inside)
    earliest, latest = (start.min(), start.max()) if len(start) else (0, -1)
    return Gaps(first, last, (first >= earliest) & (last <= latest))


def _lengths_without(first: Ints, last: Ints, others: Intervals) -> Ints:
    """How much of each stretch lies in none of the others."""
    merged = merge(*others)
    return np.asarray(last - first - (coverage_before(merged, last) - coverage_before(merged, first)), dtype=np.int64)
