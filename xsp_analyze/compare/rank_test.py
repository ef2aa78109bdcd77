"""The Mann-Whitney test: whether values of one side rank above those of the other, whatever shape their noise has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.arrays import Floats

__all__ = ["RankTest", "rank_test"]

_EXACT_UP_TO = 40  # values of both sides together; with more the normal distribution is near enough
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class RankTest:
    """Two-sided p, and the least p that so many values can have: above 5 % the test can decide nothing."""

    p: float
    min_p: float


def rank_test(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> RankTest | None:
    """The test of independent values of two sides; null where a side has none or holds what is unknown.

    Exact, ties and all, by counting in how many of all ways to share the ranks out the sum lies as far off. Source:
    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger", 1947.
    """
    values = np.concatenate([np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)])
    first, count = len(before), len(values)
    if not 0 < first < count or not np.isfinite(values).all():
        return None
    doubled = _doubled_ranks(values)
    total = int(sum(doubled[:first]))
    if count <= _EXACT_UP_TO:
        return RankTest(_exact(tuple(sorted(doubled)), first, total), min(2 / math.comb(count, first), 1.0))
    return RankTest(_normal(doubled, first, total), 0.0)


def _doubled_ranks(values: Floats) -> list[int]:
    """Twice the rank of each value: whole where equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return [int(rank) for rank in (2 * last - counts + 1)[inverse]]


def _exact(ranks: tuple[int, ...], first: int, total: int) -> float:
    ways = _ways(ranks, first)
    middle = first * (len(ranks) + 1)  # of doubled ranks
    sums = np.arange(len(ways))
    as_far = np.abs(sums - middle) >= abs(total - middle)
    return float(ways[as_far].sum() / ways.sum())


@lru_cache(_CACHED)
def _ways(ranks: tuple[int, ...], first: int) -> Floats:
    """In how many ways `first` of the ranks have each sum: exact up to 2^53, which 40 values stay far below."""
    ways = np.zeros((first + 1, sum(ranks) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    of_first: Floats = ways[first].copy()
    return of_first


def _normal(doubled: Sequence[int], first: int, total: int) -> float:
    """By the normal distribution, corrected for ties and for ranks being whole."""
    count = len(doubled)
    off = np.asarray(doubled, dtype=np.float64) - (count + 1)
    variance = first * (count - first) / (count * (count - 1)) * float((off**2).sum())
    if variance <= 0:
        return 1.0
    distance = max(abs(total - first * (count + 1)) - 1.0, 0.0)  # half a rank, doubled
    return math.erfc(distance / math.sqrt(2 * variance))
