"""Walks up the span tree, against a walk span by span."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_model.columns import tree


@st.composite
def _forests(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    size = draw(st.integers(0, 14))
    parents = [draw(st.integers(-1, index - 1)) for index in range(size)]
    mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    relabelled = draw(st.permutations(range(size)))
    mixed = [-1] * size
    for index, parent in enumerate(parents):
        mixed[relabelled[index]] = relabelled[parent] if parent >= 0 else -1
    return mixed, mask


def _chain(parents: list[int], index: int) -> list[int]:
    chain = [index]
    while parents[chain[-1]] >= 0:
        chain.append(parents[chain[-1]])
    return chain


@given(_forests())
def test_innermost_is_the_first_wanted_on_the_way_up(forest: tuple[list[int], list[bool]]) -> None:
    parents, mask = forest
    expected = [next((p for p in _chain(parents, i) if mask[p]), -1) for i in range(len(parents))]
    ancestors = tree.innermost(np.array(parents, dtype=np.int64), np.array(mask, dtype=np.bool_))
    assert ancestors.tolist() == expected


@given(_forests())
def test_outermost_is_the_last_wanted_on_the_way_up(forest: tuple[list[int], list[bool]]) -> None:
    parents, mask = forest
    expected = [next((p for p in reversed(_chain(parents, i)) if mask[p]), -1) for i in range(len(parents))]
    ancestors = tree.outermost(np.array(parents, dtype=np.int64), np.array(mask, dtype=np.bool_))
    assert ancestors.tolist() == expected


def test_ancestors_go_up_one_generation_at_a_time() -> None:
    generations = [up.tolist() for up in tree.ancestors(np.array([-1, 0, 1, 1]))]
    assert generations == [[-1, 0, 1, 1], [-1, -1, 0, 0]]


@given(_forests())
def test_depths_count_all_on_the_way_up(forest: tuple[list[int], list[bool]]) -> None:
    parents, _ = forest
    assert tree.depths(np.array(parents, dtype=np.int64)).tolist() == [
        len(_chain(parents, i)) - 1 for i in range(len(parents))
    ]


def test_a_hundred_thousand_spans_in_one_another_take_seventeen_rounds() -> None:
    parent = np.arange(-1, 99_999)
    assert [int(rows[0]) for rows, _ in tree.jumps(parent)] == [2**doubled for doubled in range(17)]
    assert tree.depths(parent).tolist() == list(range(100_000))
    first = np.arange(100_000) == 0
    assert tree.innermost(parent, first).max() == tree.outermost(parent, ~first)[0] + 1 == 0


def test_a_cycle_is_an_error() -> None:
    cycle, none = np.array([1, 0]), np.zeros(2, dtype=np.bool_)
    walks = (
        lambda: list(tree.ancestors(cycle)),
        lambda: tree.depths(cycle),
        lambda: tree.innermost(cycle, none),
        lambda: tree.outermost(cycle, none),
    )
    for walk in walks:
        with pytest.raises(ValueError, match="cycle"):
            walk()
