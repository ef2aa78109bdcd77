"""How a device's time divides into compute, communication, memory traffic and idle, in exact ns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import groups
from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION
from xsp_model import Kind
from xsp_model.intervals import intersection, merge

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints

__all__ = ["MEASURES", "breakdown"]

MEASURES = (
    "window_ns",
    "busy_ns",
    "compute_ns",
    "communication_ns",
    "memory_ns",
    "compute_communication_ns",
    "exposed_communication_ns",
    "exposed_memory_ns",
)
"""What `breakdown` measures."""

_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_COMPUTE, _COMMUNICATION, _MEMORY = range(3)


def breakdown(
    activities: pl.DataFrame, keys: list[str], grouped: tuple[pl.DataFrame, Ints, Ints] | None = None
) -> pl.DataFrame:
    """One row a value of the keys, in order: MEASURES in ns, each the length of a union of intervals.

    `compute` is every kernel (or graph) that is not communication, `memory` copies and memsets. What is exposed runs
    while nothing earlier in that order does, so that busy = compute + exposed communication + exposed memory.
    `grouped`: the activities by these keys (see `group_ids.groups`), where the caller has them.
    """
    values, order, bounds = grouped or groups(activities, keys)
    start, duration = (activities[c].to_numpy()[order] for c in ("start_ns", "duration_ns"))
    category = _categories(activities)[order]
    end = start + duration
    rows = [_measure(start[a:b], end[a:b], category[a:b]) for a, b in pairwise(bounds.tolist())]
    return values.hstack(pl.DataFrame(rows, schema=dict.fromkeys(MEASURES, pl.Int64), orient="row"))


def _categories(activities: pl.DataFrame) -> Ints:
    """Which of the three each activity is."""
    is_copy = pl.col("kind").cast(pl.String).is_in(_COPIES)
    category = pl.when(is_copy).then(_MEMORY).when(IS_COMMUNICATION).then(_COMMUNICATION).otherwise(_COMPUTE)
    return activities.select(category.cast(pl.Int64)).to_series().to_numpy()


def _measure(start: Ints, end: Ints, category: Ints) -> tuple[int, ...]:
    compute, communication, memory = (_union(start, end, category == c) for c in range(3))
    working = merge(np.concatenate((compute[0], communication[0])), np.concatenate((compute[1], communication[1])))
    both = _length(intersection(compute, communication))
    hidden = _length(intersection(working, memory))
    return (
        int(end.max() - start.min()),
        _length(working) + _length(memory) - hidden,
        _length(compute),
        _length(communication),
        _length(memory),
        both,
        _length(communication) - both,
        _length(memory) - hidden,
    )


def _union(start: Ints, end: Ints, mask: Bools) -> tuple[Ints, Ints]:
    return merge(start[mask], end[mask])


def _length(union: tuple[Ints, Ints]) -> int:
    return int((union[1] - union[0]).sum())
