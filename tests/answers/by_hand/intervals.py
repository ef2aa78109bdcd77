"""Unions and intersections of intervals `(start, end)` in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["clipped", "common", "gaps", "length", "union"]

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals in order that cover the same."""
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [(start, end) for start, end in merged]


def length(intervals: Iterable[Interval]) -> int:
    """Covered time: overlaps count once."""
    return sum(end - start for start, end in union(intervals))


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """What of the intervals lies in the window."""
    low, high = window
    cut = ((max(start, low), min(end, high)) for start, end in intervals)
    return [(start, end) for start, end in cut if start < end]


def common(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Where both are covered."""
    mine, others = union(left), union(right)
    out: list[Interval] = []
    at = 0
    for start, end in mine:
        while at < len(others) and others[at][1] <= start:
            at += 1
        probe = at
        while probe < len(others) and others[probe][0] < end:
            out.append((max(start, others[probe][0]), min(end, others[probe][1])))
            probe += 1
    return out


def gaps(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """What of the window is not covered."""
    out, at = [], window[0]
    for start, end in union(clipped(intervals, window)):
        if start > at:
            out.append((at, start))
        at = end
    return [*out, (at, window[1])] if at < window[1] else out
