"""What layer latency is measured by, and how."""

from __future__ import annotations

import polars as pl
import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.trace.step_view import StepView


def asynchronous(**facts: object) -> Hand:
    """Two layers called at [0, 100) and [100, 200) whose kernels run later, one in backward.

    Linear_0: forward [300, 340) and [360, 400), backward [700, 720). Block_0, a container with 60 ns of its own:
    [400, 450) and [440, 460), then [500, 510).
    """
    hand = Hand()
    hand.run(0, **facts)
    linear = hand.module("Linear_0", 0, 100, 0)
    block = hand.module("Block_0", 100, 100, 1, self_host=60)
    for start, duration, launch, layer, phase in (
        (300, 40, 10, linear, "forward"),
        (360, 40, 20, linear, "forward"),
        (700, 20, 600, linear, "backward"),
        (400, 50, 110, block, "forward"),
        (440, 20, 120, block, "forward"),
        (500, 10, 130, block, "forward"),
    ):
        parent = layer if phase == "forward" else None
        hand.work("k", start, duration, launch=launch, parent=parent, layer=layer, phase=phase, stream_id=start)
    return hand


def latencies(hand: Hand) -> tuple[object, list[tuple[object, ...]]]:
    view = StepView.of(hand.build())
    table = run(find("A11"), view).table
    rows = table.select("layer_name", "layer_latency_ns", "kernel_duration_ns", "non_kernel_ns")
    return coverage.provenance(view)["layer_latency_basis"], rows.rows()


def test_device_basis_where_kernels_outlast_the_calls() -> None:
    # Linear_0: 400 - 300 forward and 20 backward. Block_0: the union, 60 + 10.
    assert latencies(asynchronous()) == ("device", [("Linear_0", 120, 100, 20), ("Block_0", 70, 80, -10)])


def test_run_that_says_it_was_serialised_is_believed() -> None:
    assert latencies(asynchronous(serialised=True)) == ("host", [("Linear_0", 100, 100, 0), ("Block_0", 60, 80, -20)])


def test_run_that_says_it_was_not_serialised_is_believed() -> None:
    hand = Hand()
    hand.run(0, serialised=False)
    layer = hand.module("Linear_0", 0, 100, 0)
    hand.work("k", 20, 30, launch=10, parent=layer, layer=layer, phase="forward")
    assert latencies(hand) == ("device", [("Linear_0", 30, 30, 0)])


def test_negative_rest_is_kept_and_flagged() -> None:
    ledger = coverage.ledger(StepView.of(asynchronous().build()))
    flagged = ledger.filter(pl.col("kind") == "negative_non_kernel")
    assert flagged.select("count", "duration_ns").rows() == [(1, 10)]


@pytest.mark.parametrize(
    ("kernel_ns", "overlap_ns", "flagged"),
    [
        (1_000_000, 88, []),  # of 1_999_912 ns of latency: the profiler's rounding
        (1_000_000, 999, []),
        (1_000_000, 1_000, [(1, 1_000)]),  # 1 us
        (10_000, 19, []),  # of 19_981 ns: just below 0.1 %
        (10_000, 20, [(1, 20)]),  # of 19_980 ns: just above
    ],
)
def test_an_overlap_by_rounding_is_not_flagged(kernel_ns: int, overlap_ns: int, flagged: list[tuple[int, int]]) -> None:
    hand = Hand()
    hand.run(0, serialised=False)
    layer = hand.module("Linear_0", 0, 100, 0)
    for start in (1_000, 1_000 + kernel_ns - overlap_ns):
        hand.work("k", start, kernel_ns, launch=10, parent=layer, layer=layer, phase="forward")
    ledger = coverage.ledger(StepView.of(hand.build())).filter(pl.col("kind") == "negative_non_kernel")
    assert ledger.select("count", "duration_ns").rows() == flagged


@pytest.mark.parametrize("serialised", [None, True, False])
def test_layers_without_device_work_are_timed_on_the_host(serialised: bool | None) -> None:  # noqa: FBT001
    hand = Hand()
    hand.run(0, serialised=serialised)
    hand.module("Linear_0", 0, 100, 0)
    hand.module("Linear_0", 200, 110, 0)
    view = StepView.of(hand.build())
    assert run(find("A02"), view).table.select("layer_name", "call_count", "latency_ns").rows() == [
        ("Linear_0", 2, 210)
    ]
    assert coverage.provenance(view)["layer_latency_basis"] == "host"


@pytest.mark.parametrize("identifier", ["A02", "A11", "B06"])
def test_calls_without_own_work_are_no_layers(identifier: str) -> None:
    hand = asynchronous()
    hand.module("Outer_0", 1000, 50)
    table = run(find(identifier), StepView.of(hand.build())).table
    names = table["module_instance" if identifier == "B06" else "layer_name"].to_list()
    assert ("Outer_0" in names) == (identifier == "B06")


def test_a_layer_without_device_work_has_no_device_latency() -> None:
    """A11 shows 0 for none; here the cell is empty, beside layers of which the device's time is known."""
    hand = asynchronous()
    hand.module("Flatten_0", 210, 50, 2)
    table = run(find("A02"), StepView.of(hand.build())).table.select("layer_name", "latency_ns")
    assert table.rows() == [("Linear_0", 120), ("Block_0", 70), ("Flatten_0", None)]


def test_a_layer_with_device_work_in_some_steps_took_none_in_the_others() -> None:
    hand = Hand()
    hand.run(0, serialised=False)
    for step, launches in ((0, True), (1, False)):
        hand.step(step, 1_000 * step, 500)
        layer = hand.module("Linear_0", 1_000 * step, 100, 0, step=step)
        if launches:
            hand.work("k", 300, 40, launch=10, parent=layer, layer=layer, phase="forward", step=step)
    table = run(find("A02"), StepView.of(hand.build(), "each")).table
    assert table["latency_ns"].to_list() == [40, 0]
