"""Gives host spans without threads lanes in which they nest: a lane is what linking takes for a thread.

MLModelScope ties layers, launches and calls alike to the model's span, and tells no thread for launches; its own
analysis finds parents by time and level. Layers never nest in each other: those that ran side by side get a lane each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.link.nest import SLACK_NS
from xsp_model import Level
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HostSpan", "lanes"]

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_MUST_FIT = frozenset({Level.APPLICATION, Level.MODEL})  # an overhang here would hide the model's span


@dataclass(frozen=True, slots=True)
class HostSpan:
    """A span on the host; `parent` is the position of the span it refers to, or -1."""

    level: Level
    start_ns: int
    end_ns: int
    parent: int = -1


def lanes(spans: Sequence[HostSpan]) -> tuple[list[int], int]:
    """A lane for each span, and how many spans could be in several layers at once; half-open intervals.

    A span goes where the innermost span of the deepest outer level holds it. O(n log n + n * lanes).
    """
    order = sorted(range(len(spans)), key=lambda i: (spans[i].start_ns, _RANK[spans[i].level], -spans[i].end_ns, i))
    lane_of = [0] * len(spans)
    stacks: list[list[int]] = []
    ambiguous = 0
    for i in order:
        lane, doubtful = _choose(i, spans, stacks)
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(i)
        lane_of[i] = lane
        ambiguous += doubtful
    return lane_of, ambiguous


def _choose(i: int, spans: Sequence[HostSpan], stacks: list[list[int]]) -> tuple[int, bool]:
    tops: list[tuple[int, int]] = []
    free = len(stacks)
    for lane in reversed(range(len(stacks))):
        stack = stacks[lane]
        while stack and spans[stack[-1]].end_ns <= spans[i].start_ns:
            stack.pop()
        if stack:
            tops.append((lane, stack[-1]))
        else:
            free = lane
    holders = [(lane, top) for lane, top in tops if _holds(spans[top], spans[i])]
    complete = [(lane, top) for lane, top in holders if spans[i].end_ns <= spans[top].end_ns + SLACK_NS]
    if not complete and spans[i].level not in _MUST_FIT:
        complete = holders
    return _best(i, complete, spans) if complete else (free, False)


def _holds(top: HostSpan, span: HostSpan) -> bool:
    """Whether linking may take `top` for the span's parent, and should."""
    return _RANK[top.level] < _RANK[span.level] or (top.level == span.level and span.level is not Level.LAYER)


def _best(i: int, holders: Sequence[tuple[int, int]], spans: Sequence[HostSpan]) -> tuple[int, bool]:
    deepest = max(_RANK[spans[top].level] for _, top in holders)
    equal = [(lane, top) for lane, top in holders if _RANK[spans[top].level] == deepest]
    recorded = [(lane, top) for lane, top in equal if top == spans[i].parent]
    lane, _ = max(recorded or equal, key=lambda pair: (spans[pair[1]].start_ns, -pair[0]))
    return lane, len(equal) > 1 and not recorded
