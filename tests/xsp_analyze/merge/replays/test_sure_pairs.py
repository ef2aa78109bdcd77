"""Sure pairs against every best alignment of short sequences, listed one by one."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from xsp_analyze.merge.matching import Alignment, align
from xsp_analyze.merge.replay_pairs import sure_pairs
from xsp_model.limits import override_limits

_Pairs = tuple[tuple[int, int], ...]


def _best_alignments(first: list[int], second: list[int]) -> frozenset[_Pairs]:
    @cache
    def longest(i: int, j: int) -> int:
        if i == len(first) or j == len(second):
            return 0
        matched = 1 + longest(i + 1, j + 1) if first[i] == second[j] else 0
        return max(longest(i + 1, j), longest(i, j + 1), matched)

    @cache
    def every(i: int, j: int) -> frozenset[_Pairs]:
        if not longest(i, j):
            return frozenset([()])
        out: set[_Pairs] = set()
        if longest(i + 1, j) == longest(i, j):
            out |= every(i + 1, j)
        if longest(i, j + 1) == longest(i, j):
            out |= every(i, j + 1)
        if first[i] == second[j] and 1 + longest(i + 1, j + 1) == longest(i, j):
            out |= {((i, j), *rest) for rest in every(i + 1, j + 1)}
        return frozenset(out)

    return every(0, 0)


def _changed(items: list[int], rng: random.Random) -> list[int]:
    out = list(items)
    for _ in range(rng.randint(0, 3)):
        if rng.random() < 0.5 and len(out) > 1:
            out.pop(rng.randrange(len(out)))
        else:
            out.insert(rng.randint(0, len(out)), rng.randint(0, 2))
    return out


@pytest.mark.parametrize("seed", range(300))
def test_an_item_is_sure_where_all_best_alignments_give_it_one_identity(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (a test's dice)
    first = [rng.randint(0, 2) for _ in range(rng.randint(1, 8))]
    second = _changed(first, rng)
    identity = [rng.randint(0, 1) for _ in second]
    pairs = sure_pairs(np.array(first), np.array(second), np.array(identity), align(first, second))
    listed = [dict(each) for each in _best_alignments(first, second)]
    for i in range(len(first)):
        identities = {identity[each[i]] if i in each else None for each in listed}
        assert pairs.sure[i] == (len(identities) == 1 and None not in identities), (first, second, identity, i)
        if pairs.sure[i]:
            assert identity[pairs.partner[i]] in identities


def test_an_identity_that_is_not_one_is_never_sure() -> None:
    equal = np.array([1, 2, 3])
    pairs = sure_pairs(equal, equal, np.array([0, -1, 0]), align([1, 2, 3], [1, 2, 3]))
    assert pairs.sure.tolist() == [True, False, True]


@override_limits(sure_pairs_max_cells=1)
def test_too_long_sequences_are_paired_but_never_sure() -> None:
    pairs = sure_pairs(
        np.array([1, 2]), np.array([1, 2, 3]), np.zeros(3, np.int64), Alignment([(0, 0), (1, 1)], 1, 2, 3)
    )
    assert pairs.partner.tolist() == [0, 1]
    assert not pairs.sure.any()
