"""How much of a window stretches take up, in closed form over many windows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["covered", "merged"]


def covered(start: Ints, end: Ints, edges: Ints) -> Ints:
    """For each window between neighbouring edges the sum of what each stretch has inside it; overlaps count again."""
    before = _sum_before(np.sort(start), edges) - _sum_before(np.sort(end), edges)
    return np.diff(before)


def _sum_before(moments: Ints, edges: Ints) -> Ints:
    """For each edge the sum of its distances from the moments before it."""
    sums = np.concatenate(([0], np.cumsum(moments - moments[0] if len(moments) else moments)))
    count = np.searchsorted(moments, edges, side="left")
    first = moments[0] if len(moments) else 0
    return count * (edges - first) - sums[count]


def merged(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The stretches with those that overlap or touch made one, in order of start."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    begun, reach = start[order], np.maximum.accumulate(end[order])
    new = np.concatenate(([True], begun[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(begun) - 1]))
    return begun[new], reach[last]
