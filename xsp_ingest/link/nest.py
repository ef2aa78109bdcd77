"""Rule 3: on one thread, a span's parent is the innermost span of its own or an outer level that holds its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.link.engine import dual

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["SLACK_NS", "Nesting", "nest"]

SLACK_NS = 1_000
"""Profilers round: an end may overhang its parent's by this much and still count as nested."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each span its parent's position or -1, whether it overhangs it, and whether another parent was possible."""

    parent: Ints
    overhangs: Bools
    ambiguous: Bools


def nest(group: Ints, start: Ints, end: Ints, rank: Ints) -> Nesting:
    """Nests the spans of each group (a thread of a process); `rank` is the level's, outermost 0.

    Intervals are half open. Of spans that start together the outer level, then the longer one, is outside. A span
    whose `end` is its `start` is nobody's parent. O(n log n), no Python per span on large inputs.
    """
    count = len(group)
    order = np.lexsort((np.arange(count), -end, rank, start, group))
    found, overhangs, ambiguous, _ = _sweep(
        group[order], start[order], end[order], rank[order], SLACK_NS, outputs=4, fill=-1
    )
    parent = np.full(count, -1, dtype=np.int64)
    nested = found >= 0
    parent[order[nested]] = order[found[nested]]
    return Nesting(parent, _scatter(overhangs, order), _scatter(ambiguous, order))


def _scatter(flags: Ints, order: Ints) -> Bools:
    out = np.zeros(len(order), dtype=np.bool_)
    out[order] = flags > 0
    return out


@dual
def _sweep(
    group: Ints,
    start: Ints,
    end: Ints,
    rank: Ints,
    slack: int,
    parent: Ints,
    overhangs: Ints,
    ambiguous: Ints,
    stack: Ints,
) -> None:
    """A stack of the open spans of one thread; a closed one below an open one is passed over, not yet dropped."""
    top = 0
    for i in range(len(group)):
        if i > 0 and group[i] != group[i - 1]:
            top = 0
        now = start[i]
        while top > 0 and end[stack[top - 1]] <= now:
            top -= 1
        k = top - 1
        while k >= 0 and (end[stack[k]] <= now or rank[stack[k]] > rank[i]):
            k -= 1
        if k >= 0:
            j = stack[k]
            parent[i] = j
            if end[i] > end[j] + slack:
                overhangs[i] = 1
            if overhangs[j] == 1 and end[parent[j]] > now:
                ambiguous[i] = 1
        stack[top] = i
        top += 1
