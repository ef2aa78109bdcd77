"""Work on several streams pairs with its launches by the order within each, if that leaves one way only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xsp_ingest.link.graph_pairing import Ambiguous, launches_on_streams, order_on_streams

if TYPE_CHECKING:
    from random import Random


def test_the_next_launch_is_on_the_stream_that_has_it_next() -> None:
    order = order_on_streams(np.array([5, 6, 7]), np.array([6, 5, 7]), np.array([2, 1, 1]))
    assert isinstance(order, np.ndarray)
    assert order.tolist() == [1, 0, 2]


def test_two_streams_that_have_it_next_leave_it_open() -> None:
    assert order_on_streams(np.array([5, 5]), np.array([5, 5]), np.array([1, 2])) is Ambiguous.YES


def test_work_in_another_order_than_its_stream_is_of_other_launches() -> None:
    assert order_on_streams(np.array([5, 6]), np.array([6, 5]), np.array([1, 1])) is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=9), st.randoms(use_true_random=False)
)
def test_what_is_said_is_how_the_work_was_launched(launched: list[tuple[int, int]], dice: Random) -> None:
    """Each launch with its stream and kernel; streams then run beside each other in any way."""
    queues = {stream: [n for n, (own, _) in enumerate(launched) if own == stream] for stream, _ in launched}
    ran: list[int] = []
    while any(queues.values()):
        stream = dice.choice([each for each, queue in queues.items() if queue])
        ran.append(queues[stream].pop(0))
    captured = np.array([kernel for _, kernel in launched])
    tokens, streams = captured[ran], np.array([launched[n][0] for n in ran])
    if isinstance(order_on_streams(captured, tokens, streams), np.ndarray):
        assert launches_on_streams(captured, tokens, streams).tolist() == ran
    else:
        assert order_on_streams(captured, tokens, streams) is Ambiguous.YES or (streams == streams[0]).all()
