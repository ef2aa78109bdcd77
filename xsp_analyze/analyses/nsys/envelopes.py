"""Ranges of one thread with the extent of the work that was launched inside each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.analyses.nsys.containment import containing

if TYPE_CHECKING:
    from xsp_analyze.analyses.nsys.calls import Calls
    from xsp_model.arrays import Bools, Ints

__all__ = ["Envelopes", "envelopes"]


@dataclass(frozen=True, slots=True)
class Envelopes:
    """The rows of ranges that hold a launching call, the extent of its work, and how many launches there were.

    `outside`: which of the calls are in no range.
    """

    rows: Ints
    first: Ints
    last: Ints
    operations: Ints
    outside: Bools


def envelopes(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    """What ranges with these bounds hold; a call must be in a range as a whole, bounds included."""
    in_turn = bool((calls.end[1:] >= calls.end[:-1]).all())
    if in_turn and _all_differ(calls.correlation):
        return _of_stretches(start, end, calls)
    return _of_pairs(start, end, calls)


def _all_differ(numbers: Ints) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all()) or len(np.unique(numbers)) == len(numbers)


def _of_stretches(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    """Where calls end in the order in which they start, those that a range holds follow one another."""
    low = np.searchsorted(calls.start, start, side="left")
    high = np.searchsorted(calls.end, end, side="right")
    rows = np.flatnonzero(low < high)
    low, high = low[rows], high[rows]
    bounds = np.stack((low, high), axis=1).reshape(-1)
    steps = np.bincount(low, minlength=len(calls.start) + 1) - np.bincount(high, minlength=len(calls.start) + 1)
    return Envelopes(
        rows,
        _over(np.minimum, calls.work_start, bounds),
        _over(np.maximum, calls.work_end, bounds),
        high - low,
        np.cumsum(steps)[:-1] == 0,
    )


def _over(extreme: np.ufunc, values: Ints, bounds: Ints) -> Ints:
    """The extreme over each stretch, whose bounds lie side by side."""
    if not len(bounds):
        return values[:0]
    closed = np.concatenate((values, values[-1:]))  # a stretch may end behind the last value
    return np.asarray(extreme.reduceat(closed, bounds)[::2], dtype=np.int64)


def _of_pairs(start: Ints, end: Ints, calls: Calls) -> Envelopes:
    pieces = list(containing(start, end, calls.start, calls.end))
    nothing = np.empty(0, dtype=np.int64)
    inner = np.concatenate([nothing, *(pair[0] for pair in pieces)])
    outer = np.concatenate([nothing, *(pair[1] for pair in pieces)])
    limits = np.iinfo(np.int64)
    first, last = np.full(len(start), limits.max), np.full(len(start), limits.min)
    np.minimum.at(first, outer, calls.work_start[inner])
    np.maximum.at(last, outer, calls.work_end[inner])
    distinct, launch = np.unique(calls.correlation, return_inverse=True)
    launches = np.unique(outer * max(len(distinct), 1) + launch[inner]) // max(len(distinct), 1)
    operations = np.bincount(launches, minlength=len(start))
    rows = np.flatnonzero(operations)
    outside = np.ones(len(calls.start), dtype=np.bool_)
    outside[inner] = False
    return Envelopes(rows, first[rows], last[rows], operations[rows], outside)
