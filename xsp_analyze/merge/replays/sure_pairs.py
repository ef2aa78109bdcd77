"""Which items of two sequences belong together in every best alignment of them, and which might go elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xsp_model.limits import limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsp_analyze.merge.alignment import Alignment
    from xsp_model.arrays import Bools, Ints

__all__ = ["SurePairs", "sure_pairs"]

_NONE = -(1 << 30)  # less than any length


@dataclass(frozen=True, slots=True)
class SurePairs:
    """For each item of the first sequence one partner in the second (-1: none), and whether no other is as good.

    An item is sure where all alignments of greatest length pair it, each with an item of the same identity.
    """

    partner: Ints
    sure: Bools


def sure_pairs(first: Ints, second: Ints, identity: Ints, alignment: Alignment) -> SurePairs:
    """The pairs of two sequences of keys of which the alignment is one that is best.

    `identity` is that of the second's items, negative where it is not sure. Of sequences too long for a table of their
    edits no pair is sure.
    """
    if np.array_equal(first, second):
        return SurePairs(np.arange(len(first), dtype=np.int64), identity >= 0)
    partner = np.full(len(first), -1, dtype=np.int64)
    sure = np.zeros(len(first), dtype=np.bool_)
    deletions, insertions = len(first) - len(alignment.pairs), len(second) - len(alignment.pairs)
    if (len(first) + 1) * (deletions + insertions + 1) <= limits().sure_pairs_max_cells:
        _Band(first, second, deletions, insertions).fill(identity, partner, sure)
    else:
        ours, theirs = np.array(alignment.pairs, dtype=np.int64).reshape(-1, 2).T
        partner[ours] = theirs
    return SurePairs(partner, sure)


class _Band:
    """Lengths of common subsequences of beginnings and ends, for the pairs of positions that a best alignment can pass.

    Column k of row i is position j = i + k - deletions of the second: further off would take more edits.
    """

    def __init__(self, first: Ints, second: Ints, deletions: int, insertions: int) -> None:
        self.first, self.second = first, second
        self.offsets = np.arange(-deletions, insertions + 1)

    def fill(self, identity: Ints, partner: Ints, sure: Bools) -> None:
        """Sets partner and sure of each item of the first sequence."""
        before = self._beginnings()
        after = np.where(self._inside(len(self.first)), 0, _NONE)
        longest = before[-1][len(self.second) - len(self.first) - self.offsets[0]]
        for i in range(len(self.first) - 1, -1, -1):
            equal = self._equal(i)
            below = np.concatenate(([_NONE], after[:-1]))
            best = equal & (before[i] + 1 + after == longest)
            identities = identity[i + self.offsets[best]]
            if len(identities):
                partner[i] = i + self.offsets[best][0]
                skipped = bool((before[i] + below == longest).any())
                sure[i] = not skipped and identities[0] >= 0 and bool((identities == identities[0]).all())
            lengths = np.maximum(below, np.where(equal, after + 1, _NONE))
            lengths = np.maximum.accumulate(lengths[::-1])[::-1]
            after = np.where(self._inside(i), lengths, _NONE)

    def _beginnings(self) -> list[NDArray[np.int32]]:
        rows = [np.where(self._inside(0), 0, _NONE).astype(np.int32)]
        for i in range(len(self.first)):
            above = np.concatenate((rows[-1][1:], [_NONE]))
            lengths = np.maximum(above, np.where(self._equal(i), rows[-1] + 1, _NONE))
            lengths = np.maximum.accumulate(lengths)
            rows.append(np.where(self._inside(i + 1), lengths, _NONE).astype(np.int32))
        return rows

    def _inside(self, i: int) -> Bools:
        j = i + self.offsets
        return np.asarray((j >= 0) & (j <= len(self.second)))

    def _equal(self, i: int) -> Bools:
        """For each position j of row i whether the items there, which a match would take, are equal."""
        j = i + self.offsets
        inside = (j >= 0) & (j < len(self.second))
        equal = np.zeros(len(j), dtype=np.bool_)
        equal[inside] = self.second[j[inside]] == self.first[i]
        return equal
