"""The order of replays tells graphs of the same kernels apart, and where it does not, nothing is said."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xsp_ingest.link.graph_pairing import rounds


def _meaning(graph: int) -> int:
    return graph


def test_a_graph_of_its_own_fixes_where_a_round_begins() -> None:
    possible = [[1, 2], [1, 2], [0], [1, 2], [1, 2], [0], [1, 2]]
    assert rounds(possible, ["run"] * 3, _meaning).tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_without_such_a_graph_nothing_is_certain() -> None:
    assert rounds([[0, 1, 2]] * 5, ["run"] * 3, _meaning).tolist() == [-1] * 5


def test_graphs_that_mean_the_same_are_as_one() -> None:
    assert rounds([[0, 1]] * 3, ["run"] * 2, lambda _: 7).tolist() == [0, 1, 0]


def test_an_order_that_is_no_round_says_nothing() -> None:
    assert rounds([[0], [1, 2], [0]], ["run"] * 3, _meaning).tolist() == [-1] * 3


def test_each_batch_goes_around_on_its_own() -> None:
    possible = [[0], [3], [1, 2], [4, 5], [1, 2], [4, 5]]
    assert rounds(possible, [8, 8, 8, 16, 16, 16], _meaning).tolist() == [0, 3, 1, 4, 2, 5]


def test_a_replay_of_several_batches_says_nothing() -> None:
    assert rounds([[0, 1]], [8, 16], _meaning).tolist() == [-1]


@given(
    kernels=st.lists(st.integers(0, 2), min_size=1, max_size=7),
    begin=st.integers(0, 6),
    count=st.integers(1, 20),
)
def test_what_is_said_of_a_round_is_true(kernels: list[int], begin: int, count: int) -> None:
    alike = [[g for g, kernel in enumerate(kernels) if kernel == each] for each in kernels]
    truth = np.array([(begin + n) % len(kernels) for n in range(count)])
    answer = rounds([alike[g] for g in truth], ["run"] * len(kernels), _meaning)
    assert ((answer == -1) | (answer == truth)).all()
    if 1 in np.bincount(kernels) and count >= 2 * len(kernels):
        assert (answer == truth).all()
