"""Lanes in which spans lie in the spans that they name as parents: a lane is what linking takes for a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["lanes"]


def lanes(spans: Sequence[tuple[int, int, int]], parent: Sequence[int]) -> tuple[list[int], int]:
    """A lane for each span (process, start, end), and how many do not lie in their parent there.

    Linking finds parents by time, so a span goes on a lane behind or in its parent, or on one where nothing runs:
    nothing is hung under what it does not name. Children at the same time, and those that outlast their parent, lie
    alone. Lanes of all processes are counted together.
    """
    depth = _depths(parent)
    order = sorted(range(len(spans)), key=lambda i: (spans[i][1], depth[i], -spans[i][2], i))
    lane_of = [0] * len(spans)
    running: list[tuple[int, list[int]]] = []  # of each lane its process, and the spans that run on it
    apart = 0
    for i in order:
        lane = _lane(i, spans, parent, running)
        if lane == len(running):
            running.append((spans[i][0], []))
        apart += parent[i] >= 0 and not running[lane][1]
        running[lane][1].append(i)
        lane_of[i] = lane
    return lane_of, apart


def _lane(
    i: int, spans: Sequence[tuple[int, int, int]], parent: Sequence[int], running: list[tuple[int, list[int]]]
) -> int:
    process, start, end = spans[i]
    free = len(running)
    for lane in reversed(range(len(running))):
        of, open_spans = running[lane]
        while open_spans and spans[open_spans[-1]][2] <= start:
            open_spans.pop()
        if of != process:
            continue
        if not open_spans:
            free = lane
        elif open_spans[-1] == parent[i] and end <= spans[parent[i]][2]:
            return lane
    return free


def _depths(parent: Sequence[int]) -> list[int]:
    """How many parents are above each; references hold no circles."""
    depth = [-1] * len(parent)
    for first in range(len(parent)):
        path = [first]
        while depth[path[-1]] < 0 and parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        base = max(depth[path[-1]], 0)
        for steps, at in enumerate(reversed(path)):
            depth[at] = base + steps
    return depth
