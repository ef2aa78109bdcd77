"""The linker's passes over many spans give what the plain definitions give, compiled or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from xsp_ingest.link import climb
from xsp_ingest.link.keys import pair_keys
from xsp_ingest.link.nest import Moments, nest
from xsp_ingest.link.threads import Threads
from xsp_ingest.machine import sweep
from xsp_model import tree

if TYPE_CHECKING:
    from xsp_model.arrays import Ints, Positions

_SEEDS = range(4)


@pytest.fixture(params=["plain", "compiled", "compiled, in parts"])
def engine_in_use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test with each sweep."""
    few = 1 << 60 if request.param == "plain" else 0
    if "parts" in request.param:
        monkeypatch.setattr(climb, "_PIECE", 7)
        monkeypatch.setattr("xsp_ingest.link.nest._PIECE", 7)
    monkeypatch.setattr(sweep, "_MIN_ROWS", few)
    monkeypatch.setattr(sweep, "_COMPILE_ROWS", few)
    monkeypatch.setattr(climb, "_FEW", 0)
    return str(request.param)


@pytest.mark.usefixtures("engine_in_use")
@pytest.mark.parametrize("seed", _SEEDS)
def test_climbing_agrees_with_the_plain_walk(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 400
    ranks = random.permutation(count)  # parents before or after their children, never in a circle
    parent = np.full(count, -1, dtype=np.int32)
    for i in range(count):
        above = np.flatnonzero(ranks < ranks[i])
        if len(above) and random.random() < 0.9:
            parent[i] = random.choice(above[-20:])
    mask = random.random(count) < 0.2
    assert climb.innermost(parent, mask).tolist() == tree.innermost(parent, mask).tolist()
    assert climb.outermost(parent, mask).tolist() == tree.outermost(parent, mask).tolist()


@pytest.mark.usefixtures("engine_in_use")
def test_a_circle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        climb.innermost(np.array([1, 0], dtype=np.int32), np.array([False, False]))


def _expected(
    thread: Positions, start: Ints, end: Ints, rank: Positions, at: Ints, moments: list[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """By the definition: the open spans of the thread, in the order in which they were opened."""
    order = sorted(range(len(start)), key=lambda i: (start[i], rank[i], -end[i], at[i]))
    parent, owner = [-1] * len(start), [-1] * len(moments)
    for rank_in_order, i in enumerate(order):
        open_ones = [j for j in order[:rank_in_order] if thread[j] == thread[i] >= 0 and end[j] > start[i]]
        parent[i] = next((j for j in reversed(open_ones) if rank[j] <= rank[i]), -1)
    for m, (on, time) in enumerate(moments):
        owner[m] = next((j for j in reversed(order) if thread[j] == on >= 0 and start[j] <= time < end[j]), -1)
    return parent, owner


@pytest.mark.usefixtures("engine_in_use")
@pytest.mark.parametrize("seed", _SEEDS)
def test_nesting_agrees_with_its_definition(seed: int) -> None:
    """On overlapping, equal and empty intervals as well."""
    random = np.random.default_rng(seed)
    count = 200
    start = np.sort(random.integers(0, 60, count))
    end = start + random.integers(0, 30, count)
    thread = random.integers(-1, 3, count).astype(np.int32)
    rank = random.integers(0, 4, count).astype(np.int8)
    at = random.permutation(count)
    moments = [(int(t), int(n)) for t, n in zip(random.integers(-1, 3, 40), random.integers(0, 100, 40), strict=True)]
    points = Moments(np.array([t for t, _ in moments], dtype=np.int32), np.array([n for _, n in moments]))
    nesting = nest(thread, start, end, rank, threads=3, moments=points, ties=(at,))
    parent, owner = _expected(thread, start, end, rank, at, moments)
    assert nesting.parent.tolist() == parent
    assert nesting.owner.tolist() == owner


def test_threads_are_told_apart_by_process_and_number() -> None:
    rows = pl.DataFrame({"process_id": [1, 2, 1, None, 1], "thread_id": [7, 7, 7, 7, None]})
    threads = Threads.of(rows)
    numbers = threads.numbers(rows).tolist()
    assert numbers[0] == numbers[2]
    assert len(set(numbers)) == len(numbers) - 1
    strange = threads.numbers(pl.DataFrame({"process_id": [3, 2], "thread_id": [7, None]}))
    assert strange.tolist() == [threads.count - 1, numbers[4] + numbers[1] - numbers[0]]


@pytest.mark.parametrize("far", [9, (1 << 63) - 1])
def test_pairs_are_alike_where_both_numbers_are(far: int) -> None:
    have = pl.DataFrame({"a": [1, 1, 2, None, -far], "b": [5, far, 5, 5, -far]})
    want = pl.DataFrame({"a": [1, 2, 2, None, 1, -far], "b": [far, 5, far, 5, None, -far]})
    keys, wanted_keys = pair_keys(have, want)
    assert len(set(keys.tolist())) == have.height
    assert [keys.tolist().index(k) if k in keys else None for k in wanted_keys] == [1, 2, None, None, None, 4]
