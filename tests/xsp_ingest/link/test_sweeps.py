"""The linker's passes over many spans give what the plain definitions give, compiled or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from xsp_ingest.link.nest import Moments, nest
from xsp_ingest.link.nesting import Threads, nest_with_ranges
from xsp_ingest.link.spans import innermost, outermost, pair_keys
from xsp_model.columns import tree
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model.columns.arrays import Ints, Positions

_SEEDS = range(4)


@pytest.fixture(params=["plain", "compiled", "compiled, in parts"])
def engine_in_use(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test with each sweep."""
    min_rows = 1 << 60 if request.param == "plain" else 0
    parts = {"climb_piece_spans": 7, "nesting_piece_spans": 7} if "parts" in request.param else {}
    with override_limits(sweep_min_rows=min_rows, sweep_compile_min_rows=min_rows, climb_min_spans=0, **parts):
        yield str(request.param)


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
    assert innermost(parent, mask).tolist() == tree.innermost(parent, mask).tolist()
    assert outermost(parent, mask).tolist() == tree.outermost(parent, mask).tolist()


@pytest.mark.usefixtures("engine_in_use")
def test_a_circle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        innermost(np.array([1, 0], dtype=np.int32), np.array([False, False]))


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


@pytest.mark.parametrize("seed", range(20))
def test_ranges_part_nothing_that_nests_without_them(seed: int) -> None:
    """The nearest span of an own or outer level above each, ranges passed over, is its parent without ranges."""
    random = np.random.default_rng(seed)
    start, end, level = _calls(random)
    count, extra = len(start), 40
    begin = random.integers(0, 90, extra)
    thread = np.zeros(count + extra, dtype=np.int32)
    starts = np.concatenate([start, begin])
    order = np.argsort(starts, kind="stable")
    ends = np.concatenate([end, begin + random.integers(0, 60, extra)])[order] * 10_000
    levels = np.concatenate([level, random.choice([0, 1, 2, 4], extra)]).astype(np.int8)[order]
    is_range = order >= count
    no_moments = Moments(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))
    both = nest_with_ranges(
        thread, starts[order] * 10_000, ends, levels, is_range, threads=1, moments=no_moments, ties=(order,)
    ).parent
    alone = nest(thread[:count], start * 10_000, end * 10_000, level, threads=1, ties=(np.arange(count),)).parent
    at = np.flatnonzero(~is_range)
    for i in range(count):
        above = both[at[i]]
        while above >= 0 and (is_range[above] or levels[above] > level[i]):
            above = both[above]
        assert above == (at[alone[i]] if alone[i] >= 0 else -1)


def _calls(random: np.random.Generator) -> tuple[Ints, Ints, Positions]:
    """Start, end and level of calls of one thread, each of which ends in the one that it began in.

    Such as start together are of deeper levels inwards.
    """
    rows: list[tuple[int, int, int]] = []

    def fill(first: int, last: int, depth: int, level: int) -> None:
        while first < last and depth < 6:
            stop = int(random.integers(first, last + 1))
            if stop > first:
                own = int(random.integers(level, 6))
                rows.append((first, stop, own))
                later = int(random.integers(0, 2))
                fill(first + later, stop - int(random.integers(0, 2)), depth + 1, 0 if later else own)
            first, level = stop + int(random.integers(0, 3)), level if stop == first else 0

    fill(0, 100, 0, 0)
    rows.sort(key=lambda row: (row[0], row[2], -row[1]))
    start, end, levels = (np.array(column) for column in zip(*rows, strict=True))
    return start, end, levels.astype(np.int8)
