"""Where a sequence says the same thing several times in a row."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_model.arrays import Ints

__all__ = ["Repeat", "repeats_in"]

_MAX_TRIED = 256  # every period up to it is tried; longer ones where equal stretches stand at that distance
_PERIODS_A_LENGTH = 16  # of longer ones, for each length of stretch the distances that occur most


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` equal stretches of `period` items each, side by side, from `start` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Behind the last item."""
        return self.start + self.period * self.count


def repeats_in(items: Sequence[int], rows: Sequence[int], min_rows: Sequence[int | None]) -> list[Repeat]:
    """Repeats of equal items, none of which overlap, in order.

    `rows[i]` is what item i counts for (equal items count the same). A repeat of n stretches is taken where a stretch
    has at least `min_rows[n]` rows (the last entry is for all higher counts; None: never). Of several that overlap the
    one with most rows is taken, then that with the smaller period, then the first; what is left of the others is
    looked at again. Where items before the first stretch are as the end of one, stretches end as late as they can: what
    comes before a stage's equal blocks is a first one that begins otherwise. O(n log n) for what occurs in models.
    """
    count = len(items)
    if len(set(items)) == count:
        return []
    symbols, total = np.asarray(items, dtype=np.int64), [0, *np.cumsum(rows).tolist()]

    def heap_entry(start: int, end: int, period: int) -> tuple[int, int, int, int] | None:
        repeated = (end - start) // period
        held = total[start + period] - total[start] if repeated > 1 else 0
        required = min_rows[min(repeated, len(min_rows) - 1)]
        return (-held * repeated, period, start, end) if required is not None and held >= required else None

    heap = [entry for run in _runs(symbols) if (entry := heap_entry(*run))]
    heapq.heapify(heap)
    taken: list[Repeat] = []
    while heap:
        _, period, start, end = heapq.heappop(heap)
        free = list(_free(taken, start, end))
        if free == [(start, end)]:
            repeated = (end - start) // period
            taken.insert(_position(taken, start), Repeat(end - repeated * period, period, repeated))
            continue
        for part in free:
            if (entry := heap_entry(*part, period)) is not None:
                heapq.heappush(heap, entry)
    return taken


def _position(taken: Sequence[Repeat], start: int) -> int:
    return bisect_left(taken, start, key=lambda repeat: repeat.start)


def _free(taken: Sequence[Repeat], start: int, end: int) -> Iterator[tuple[int, int]]:
    """What of the items from start to end no repeat has."""
    first = _position(taken, start)
    if first and taken[first - 1].end > start:
        start = taken[first - 1].end
    for repeat in taken[first:]:
        if repeat.start >= end:
            break
        if repeat.start > start:
            yield start, repeat.start
        start = repeat.end
    if start < end:
        yield start, end


def _runs(symbols: Ints) -> Iterator[tuple[int, int, int]]:
    """Start, end and period of every stretch in which each item is as the one a period before it, twice or more."""
    half = len(symbols) // 2
    for period in (*range(1, min(half, _MAX_TRIED) + 1), *_longer_periods(symbols, half)):
        equal = np.concatenate([[False], symbols[:-period] == symbols[period:], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        starts, ends = edges[::2], edges[1::2]
        long_enough = ends - starts >= period
        for start, end in zip(starts[long_enough].tolist(), ends[long_enough].tolist(), strict=True):
            yield start, end + period, period


def _longer_periods(symbols: Ints, half: int) -> Sequence[int]:
    """Distances at which equal stretches (of 2, 4, 8, ... items) follow one another, most frequent of each length."""
    if half <= _MAX_TRIED:
        return []
    periods: set[int] = set()
    names, length = np.unique(symbols, return_inverse=True)[1].astype(np.int64), 1
    while length <= half:
        if 2 * length >= _MAX_TRIED:
            order = np.argsort(names, kind="stable")
            same = names[order[1:]] == names[order[:-1]]
            gaps = (order[1:] - order[:-1])[same]
            gaps = gaps[(gaps > _MAX_TRIED) & (gaps <= half)]
            frequency = np.bincount(gaps)
            common = np.argsort(-frequency, kind="stable")[:_PERIODS_A_LENGTH]
            periods.update(common[frequency[common] > 0].tolist())
        pairs = names[:-length] * (int(names.max()) + 1) + names[length:]
        names, length = np.unique(pairs, return_inverse=True)[1].astype(np.int64), 2 * length
    return sorted(periods)
