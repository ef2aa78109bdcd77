"""Finds the work of replayed units in the units of a run without graphs: where every best alignment agrees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.merge.matching import align
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from xsp_analyze.merge.matching import Alignment
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "NOT_ONE",
    "AlignedLanes",
    "Lane",
    "LanePairs",
    "Pairing",
    "SurePairs",
    "Unit",
    "by_order",
    "by_search",
    "distinct_units",
    "sure_pairs",
]

NOT_ONE = -1
"""The identity of an activity that is another one in each of several units of one content."""
_JITTER_NS = 1_000  # profilers let consecutive activities of a graph overlap by so much


@dataclass(frozen=True, slots=True)
class Lane:
    """The activities of one content of a lane, in order: key, identity and whether it is a replay's, of each.

    `spans` has a row a unit.
    """

    device_id: int
    key: Ints
    identity: Ints
    replayed: Bools
    spans: Ints  # units x activities


@dataclass(frozen=True, slots=True)
class Unit:
    """Units of the same content: lanes in a fixed order, in each the earliest unit first."""

    lanes: Sequence[Lane]

    @property
    def count(self) -> int:
        """How many activities one unit has."""
        return sum(len(lane.key) for lane in self.lanes)

    @property
    def replayed_count(self) -> int:
        """How many of them are a replay's."""
        return sum(int(lane.replayed.sum()) for lane in self.lanes)


_Content = tuple[tuple[int, bytes], ...]


def distinct_units(work: pl.DataFrame, by: Sequence[str]) -> list[Unit]:
    """The units that rows of one value of the columns `by` make, those of one content as one; by first start.

    Activities of a device's streams are in one order, that of their starts, where no two ran at the same time, as
    replays of one chain may be reported on several streams; else each stream is a lane.
    """
    if work.is_empty():
        return []
    rows = _in_lanes(work, by)
    key = rows["key"].to_numpy()
    bounds = np.append(np.flatnonzero(rows["starts_lane"].to_numpy()), len(key))
    units: dict[int, list[tuple[int, bytes, slice]]] = {}
    heads = rows.select("unit", "device_id")[bounds[:-1]]
    for (unit, device), first, end in zip(heads.iter_rows(), bounds[:-1], bounds[1:], strict=True):
        units.setdefault(unit, []).append(
            (-1 if device is None else device, key[first:end].tobytes(), slice(first, end))
        )
    by_content: dict[_Content, list[list[slice]]] = {}
    for unit in sorted(units):
        lanes = sorted(units[unit], key=lambda lane: lane[:2])
        by_content.setdefault(tuple(lane[:2] for lane in lanes), []).append([lane[2] for lane in lanes])
    columns = _Columns(key, *(rows[name].to_numpy() for name in ("identity", "replayed", "span_id")))
    return [columns.unit(content, members) for content, members in by_content.items()]


@dataclass(frozen=True, slots=True)
class _Columns:
    key: Ints
    identity: Ints
    replayed: Bools
    span: Ints

    def unit(self, content: _Content, members: Sequence[Sequence[slice]]) -> Unit:
        """The units of one content, each given by where its lanes stand."""
        return Unit([self._lane(device, [member[n] for member in members]) for n, (device, _) in enumerate(content)])

    def _lane(self, device: int, slices: Sequence[slice]) -> Lane:
        identities = np.stack([self.identity[each] for each in slices])
        agreed = np.where((identities == identities[0]).all(axis=0), identities[0], NOT_ONE)
        first, spans = slices[0], np.stack([self.span[each] for each in slices])
        return Lane(device, self.key[first], agreed, self.replayed[first], spans)


def _in_lanes(work: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows in order of unit, device, lane and start, with `unit` (numbered by first start) and `starts_lane`."""
    ordered = work.sort("start_ns", "span_id").with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    units = ordered.select(by).unique(maintain_order=True).with_row_index("unit")
    rows = ordered.join(units, on=by, how="left", nulls_equal=True, maintain_order="left")
    of_device = ("unit", "device_id")
    others_end = pl.col("end_ns").cum_max().shift(1).over(of_device)
    overlaps = ((pl.col("start_ns") + _JITTER_NS) < others_end).fill_null(value=False)
    rows = rows.with_columns(
        (overlaps.any().over(of_device) & (pl.col("stream_id").n_unique().over(of_device) > 1)).alias("concurrent")
    ).with_columns(pl.when("concurrent").then("stream_id").alias("lane"))
    rows = rows.sort("unit", "device_id", "lane", "start_ns", "span_id", nulls_last=True)
    changes = [pl.col(c).ne_missing(pl.col(c).shift(1)) for c in ("unit", "device_id", "lane")]
    return rows.with_columns((pl.any_horizontal(changes) | (pl.int_range(pl.len()) == 0)).alias("starts_lane"))


# Which items of two sequences belong together in every best alignment of them, and which might go elsewhere.
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


# Finds the work of replayed units in the units of a run without graphs.
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
