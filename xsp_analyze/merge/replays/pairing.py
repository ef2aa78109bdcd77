"""Finds the work of replayed units in the units of a run without graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from xsp_analyze.merge.alignment import align
from xsp_analyze.merge.replays.lanes import NOT_ONE
from xsp_analyze.merge.replays.sure_pairs import sure_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.merge.alignment import Alignment
    from xsp_analyze.merge.replays.lanes import Lane, Unit
    from xsp_model.arrays import Bools, Ints

__all__ = ["AlignedLanes", "LanePairs", "Pairing", "by_order", "by_search"]

_MAX_CANDIDATES = 64  # units of about the same length that one is compared with
_MAX_OCCURRENCES = 10_000  # of a graph in a run: beyond, its layers are taken for unsure
_KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class AlignedLanes:
    """Two lanes that belong together, one best alignment of them, and whether no other lane fits as well."""

    ours: Lane
    theirs: Lane
    is_sure: bool
    alignment: Alignment

    def pairs(self) -> LanePairs:
        """The pairs that every best alignment has."""
        pairs = sure_pairs(self.ours.key, self.theirs.key, self.theirs.identity, self.alignment)
        spans = np.where(pairs.partner >= 0, self.theirs.spans[0][pairs.partner], -1)
        return LanePairs(self.ours, spans, pairs.sure & self.is_sure)

    def match_counts(self) -> tuple[int, int]:
        """How many activities match: replayed ones, and others."""
        mine = self.ours.replayed[[first for first, _ in self.alignment.pairs]]
        return int(mine.sum()), int((~mine).sum())


@dataclass(frozen=True, slots=True)
class LanePairs:
    """For each activity of a lane its partner's span in the reference (-1: none), and whether it is sure."""

    lane: Lane
    partner: Ints
    sure: Bools


@dataclass(frozen=True, slots=True)
class Pairing:
    """A unit of the replayed run with its partner: how much of what was replayed matches, and its lanes' pairs.

    The rate is that of the replayed work that matches over it or, if that is more, over what of the partner may be its:
    all that does not match work launched without a graph. `shown` is what tells the first mismatches.
    """

    unit: Unit
    rate: float
    lanes: Sequence[LanePairs]
    shown: AlignedLanes | None

    @property
    def unit_count(self) -> int:
        """How many units have this content."""
        return len(self.unit.lanes[0].spans)

    def at_rate(self, rate: float) -> Pairing:
        """The same with another rate: that of all units together."""
        return replace(self, rate=rate)


def by_order(units: Sequence[Unit], references: Sequence[Unit], min_rate: float) -> Iterator[Pairing]:
    """Each unit, the largest first, with the reference that its activities match best, aligned lane by lane.

    Of those that cannot match well enough the first alone is aligned, so that it can be told what does not match.
    """
    contents = [_counts(unit.lanes) for unit in references]
    is_refused = False
    for unit in sorted(units, key=lambda each: -each.count):
        best, shared = _nearest(unit, references, contents)
        if best is None or (is_refused and shared < min_rate * unit.replayed_count):
            yield Pairing(unit, 0.0, (), None)
            continue
        pairing = _align_unit(unit, best, min_rate)
        is_refused |= pairing.rate < min_rate
        yield pairing


def _counts(lanes: Sequence[Lane]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for lane in lanes:
        counts.update(lane.key.tolist())
    return counts


def _nearest(unit: Unit, references: Sequence[Unit], contents: Sequence[Counter[int]]) -> tuple[Unit | None, int]:
    """The reference that has most activities in common with the unit, of those of about its length, and how many."""
    near = sorted(range(len(references)), key=lambda n: (abs(references[n].count - unit.count), n))[:_MAX_CANDIDATES]
    if not near:
        return None, 0
    ours = _counts(unit.lanes)
    shared = {n: (ours & contents[n]).total() for n in near}
    best = max(near, key=lambda n: shared[n] / max(unit.count, references[n].count))
    return references[best], shared[best]


def _align_unit(unit: Unit, reference: Unit, min_rate: float) -> Pairing:
    lanes = list(_lane_partners(unit.lanes, reference.lanes))
    matches = [lane.match_counts() for lane in lanes]
    matched, others = sum(count for count, _ in matches), sum(count for _, count in matches)
    rate = matched / max(unit.replayed_count, reference.count - others, 1)
    shown = min(lanes, key=lambda lane: lane.alignment.rate, default=None)
    return Pairing(unit, rate, [lane.pairs() for lane in lanes] if rate >= min_rate else (), shown)


def _lane_partners(ours: Sequence[Lane], theirs: Sequence[Lane]) -> Iterator[AlignedLanes]:
    """Each lane with the one it has most in common with; not sure where another of other layers fits as well."""
    devices = {lane.device_id for lane in ours} == {lane.device_id for lane in theirs}
    contents = [_counts([lane]) for lane in theirs]
    scores = {
        (i, j): (_counts([lane]) & contents[j]).total()
        for i, lane in enumerate(ours)
        for j, other in enumerate(theirs)
        if not devices or lane.device_id == other.device_id
    }
    taken: dict[int, int] = {}
    for i, j in sorted(scores, key=lambda pair: (-scores[pair], pair)):
        if i not in taken and j not in taken.values() and scores[i, j]:
            taken[i] = j
    owners = {j: i for i, j in taken.items()}
    for i, j in sorted(taken.items()):
        rivals = [theirs[k] for n, k in scores if n == i and k != j and _fits(scores, i, k, taken, owners)]
        alignment = align(ours[i].key.tolist(), theirs[j].key.tolist())
        yield AlignedLanes(ours[i], theirs[j], all(_is_same(theirs[j], rival) for rival in rivals), alignment)


def _fits(
    scores: Mapping[tuple[int, int], int], i: int, k: int, taken: Mapping[int, int], owners: Mapping[int, int]
) -> bool:
    """Whether lane `i` may have `k` instead, its owner taking what `i` has, at no loss of what they have in common."""
    owner = owners.get(k)
    others, swapped = (0, 0) if owner is None else (scores[owner, k], scores.get((owner, taken[i]), 0))
    return scores[i, k] + swapped >= scores[i, taken[i]] + others


def _is_same(lane: Lane, other: Lane) -> bool:
    return np.array_equal(lane.key, other.key) and np.array_equal(lane.identity, other.identity)


def by_search(units: Sequence[Unit], references: Sequence[Unit]) -> Iterator[Pairing]:
    """Each unit with all stretches of the reference's lanes that equal its lanes: sure is what these agree on."""
    lanes = [lane for unit in references for lane in unit.lanes]
    texts = [lane.key.astype(np.int64).tobytes() for lane in lanes]
    for unit in units:
        pairs = [_search_lane(lane, lanes, texts) for lane in unit.lanes]
        matched = sum(int((each.partner >= 0).sum()) for each in pairs)
        yield Pairing(unit, matched / max(unit.count, 1), pairs, None)


def _search_lane(lane: Lane, references: Sequence[Lane], texts: Sequence[bytes]) -> LanePairs:
    partner = np.full(len(lane.key), -1, dtype=np.int64)
    identity = np.full(len(lane.key), NOT_ONE, dtype=np.int64)
    occurrences = _occurrences(lane.key.astype(np.int64).tobytes(), references, texts)
    for count, (reference, first) in enumerate(occurrences):
        piece = slice(first, first + len(lane.key))
        if not count:
            partner, identity = reference.spans[0][piece], reference.identity[piece].copy()
        identity[identity != reference.identity[piece]] = NOT_ONE
        if count >= _MAX_OCCURRENCES:
            identity[:] = NOT_ONE
        if (identity == NOT_ONE).all():
            break
    return LanePairs(lane, partner, identity != NOT_ONE)


def _occurrences(text: bytes, references: Sequence[Lane], texts: Sequence[bytes]) -> Iterator[tuple[Lane, int]]:
    for reference, inside in zip(references, texts, strict=True):
        at = inside.find(text)
        while at >= 0:
            if at % _KEY_BYTES == 0:
                yield reference, at // _KEY_BYTES
            at = inside.find(text, at + 1)
