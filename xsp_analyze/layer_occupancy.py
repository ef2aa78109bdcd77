"""Which layer a process was in at any time: of the calls running on its threads, the one that began last."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from xsp_model.arrays import Ints

__all__ = ["innermost_calls", "overlaps"]


def innermost_calls(calls: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Start, end and row (in `calls`) of every stretch of time that is some call's, in order, without overlap.

    `calls` has start_ns and end_ns.
    """
    order = np.lexsort((-calls["end_ns"].to_numpy(), calls["start_ns"].to_numpy()))
    start, end = calls["start_ns"].to_numpy()[order], calls["end_ns"].to_numpy()[order]
    edges = np.unique(np.concatenate((start, end)))
    found: list[tuple[int, int, int]] = []
    running: list[tuple[int, int]] = []  # the last to begin first: (-place in order, its end)
    following = 0
    for left, right in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        while following < len(start) and start[following] <= left:
            heappush(running, (-following, int(end[following])))
            following += 1
        while running and running[0][1] <= left:
            heappop(running)
        if running:
            found.append((left, right, int(order[-running[0][0]])))
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def overlaps(stretches: tuple[Ints, Ints, Ints], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """How long each call's stretches overlap the interval: (row, ns), and (-1, ns) for what no call covers."""
    left, right, rows = stretches
    first = int(np.searchsorted(right, start_ns, side="right"))
    last = int(np.searchsorted(left, end_ns, side="left"))
    shared = np.minimum(right[first:last], end_ns) - np.maximum(left[first:last], start_ns)
    found = list(zip(rows[first:last].tolist(), shared.tolist(), strict=True))
    return [*found, (-1, end_ns - start_ns - int(shared.sum()))]
