"""Walks up the span tree, against a walk span by span."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_model import tree


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


def test_a_cycle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        list(tree.ancestors(np.array([1, 0])))
