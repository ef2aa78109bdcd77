"""Aligns two sequences by a longest common subsequence: exact, but for long ones that differ much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from xsp_model.columns.arrays import Ints

__all__ = ["Alignment", "align"]

_MAX_EDITS = 128  # where a stretch differs more, a table over a window of it costs less than following the edits
_WINDOW = 4096


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
    """The alignment of two sequences of keys; two empty sequences match at 1.

    The method is E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986, whose time is linear in the length
    and in the number of differences; where these are many, the table of R. Wagner and M. Fischer, 1974, over windows.
    Exact while edits are few or the rest fits in one window.
    """
    item_ids: dict[Hashable, int] = {}
    a = [item_ids.setdefault(key, len(item_ids)) for key in first]
    b = [item_ids.setdefault(key, len(item_ids)) for key in second]
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
    for edits in range(_MAX_EDITS + 1):
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
    return _align_in_windows(a, b, i, j)


def _align_in_windows(a: list[int], b: list[int], i: int, j: int) -> tuple[list[tuple[int, int]], int, int]:
    """Matches in a window from (i, j) on, and where it ends: the first half of it, as the rest may match beyond."""
    ours, theirs = a[i : i + _WINDOW], b[j : j + _WINDOW]
    pairs = [(i + x, j + y) for x, y in _by_table(np.array(ours), np.array(theirs))]
    if i + len(ours) == len(a) and j + len(theirs) == len(b):
        return pairs, len(a), len(b)
    half = _WINDOW // 2
    kept = [(x, y) for x, y in pairs if x < i + half and y < j + half]
    if not kept:
        return [], min(i + half, len(a)), min(j + half, len(b))
    return kept, kept[-1][0] + 1, kept[-1][1] + 1


def _by_table(a: Ints, b: Ints) -> list[tuple[int, int]]:
    """The longest common subsequence of two short sequences, exactly: row by row of the table of its lengths."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int16)
    for row, value in enumerate(a):
        above = table[row]
        best = np.maximum(above[1:], np.where(b == value, above[:-1] + 1, 0))
        np.maximum.accumulate(best, out=table[row + 1, 1:])
    pairs: list[tuple[int, int]] = []
    x, y = len(a), len(b)
    while x and y:
        if table[x - 1, y] == table[x, y]:
            x -= 1
        elif table[x, y - 1] == table[x, y]:
            y -= 1
        else:
            x, y = x - 1, y - 1
            pairs.append((x, y))
    pairs.reverse()
    return pairs


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
