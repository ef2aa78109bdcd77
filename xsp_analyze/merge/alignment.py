"""Aligns two sequences by a longest common subsequence, near enough and fast on long ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = ["Alignment", "align"]

_MOST_EDITS = 128  # a stretch that differs more is cut at the farthest point reached and taken up from there


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs of positions that match, in order, and what share of the longer sequence they make up."""

    pairs: Sequence[tuple[int, int]]
    rate: float
    first_count: int
    second_count: int

    def mismatches(self) -> list[tuple[list[int], list[int]]]:
        """Stretches between matches: positions of the first and of the second sequence that have no partner."""
        gaps = []
        a = b = 0
        for i, j in [*self.pairs, (self.first_count, self.second_count)]:
            if i > a or j > b:
                gaps.append((list(range(a, i)), list(range(b, j))))
            a, b = i + 1, j + 1
        return gaps


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """The alignment of two sequences of keys, exact while edits are few; two empty sequences match at 1.

    The method is E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986. Time is linear in the length
    and in the number of differences.
    """
    codes: dict[Hashable, int] = {}
    a = [codes.setdefault(key, len(codes)) for key in first]
    b = [codes.setdefault(key, len(codes)) for key in second]
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        matched, i, j = _advance(a, b, i, j)
        pairs += matched
    longest = max(len(a), len(b))
    return Alignment(pairs, len(pairs) / longest if longest else 1.0, len(a), len(b))


def _advance(a: list[int], b: list[int], i: int, j: int) -> tuple[list[tuple[int, int]], int, int]:
    """Matches from (i, j) on, up to the ends or until the edits are too many; and where that is."""
    n, m = len(a) - i, len(b) - j
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(_MOST_EDITS + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[i + x] == b[j + y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _matches(history, k, x, i, j), len(a), len(b)
    best = max((k for k in range(-_MOST_EDITS, _MOST_EDITS + 1, 2) if reach[k] <= n and reach[k] - k <= m),
               key=lambda k: 2 * reach[k] - k)  # fmt: skip
    x = reach[best]
    return _matches(history, best, x, i, j), i + x, j + x - best


def _matches(history: list[dict[int, int]], k: int, x: int, i: int, j: int) -> list[tuple[int, int]]:
    """Walks the edits back to the start and collects the diagonal stretches."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        start = reach[before] if down else reach[before] + 1
        pairs.extend((i + p, j + p - k) for p in range(x - 1, start - 1, -1))
        k, x = before, reach[before]
    pairs.reverse()
    return pairs
