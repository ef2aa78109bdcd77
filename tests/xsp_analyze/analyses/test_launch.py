"""B04: queues, starved streams and launch latency, worked out by hand."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView


def _queue() -> Hand:
    # Stream 7. Calls take 5 ns. a: call [0,5), runs [10,40). b: call [6,11), runs [40,60): behind a from 11 to 40.
    # c: call [70,75), runs [80,90): the stream was empty from 60, and c's call ended at 75: it starved for 20.
    # Stream 8. d: call [20,25), runs [30,35): the first of its stream.
    hand = Hand()
    hand.run(0)
    hand.work("a", 10, 30, launch=0)
    hand.work("b", 40, 20, launch=6)
    hand.work("c", 80, 10, launch=70)
    hand.work("d", 30, 5, launch=20, stream_id=8)
    return hand


def test_each_kernel_has_its_latency_queue_and_starved_time() -> None:
    columns = ["kernel_name", "count", "launched", "latency_ns", "queued_ns", "queue_length", "launch_bound_share"]
    table = run(find("B04"), StepView.of(_queue().build())).table
    assert table.select(*columns, "launch_wait_ns").rows() == [
        ("c", 1, 1, 10.0, 0.0, 0.0, 1.0, 20),
        ("a", 1, 1, 10.0, 0.0, 0.0, None, 0),
        ("b", 1, 1, 34.0, 29.0, 1.0, 0.0, 0),
        ("d", 1, 1, 10.0, 0.0, 0.0, None, 0),
    ]


def test_work_without_a_launch_is_counted_and_in_no_mean() -> None:
    hand = _queue()
    hand.work("c", 100, 10)
    row = run(find("B04"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["kernel_name"], row["count"], row["launched"], row["latency_ns"]) == ("c", 2, 1, 10.0)
    assert row["launch_bound_share"] == 1.0


def test_a_step_begins_behind_the_work_of_the_one_before() -> None:
    # Step 2's kernel is launched at 30, while step 1's runs until 60.
    hand = Hand()
    hand.run(0)
    for number, launch, start in ((1, 5, 10), (2, 30, 60)):
        step = hand.step(number, 0 if number == 1 else 25, 20)
        hand.work("k", start, 50, launch=launch, parent=step, step=number)
    table = run(find("B04"), StepView.of(hand.build(), "2")).table
    assert table.select("queued_ns", "queue_length", "launch_wait_ns").rows() == [(25.0, 1.0, 0)]


@pytest.mark.parametrize("seed", range(3))
def test_neither_order_nor_shift_matters(seed: int) -> None:
    plain = run(find("B04"), StepView.of(_queue().build())).table
    assert run(find("B04"), StepView.of(_queue().build(shuffle=seed, shift=1000))).table.equals(plain)
