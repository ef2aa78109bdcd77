"""The choice of steps."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.frames.steps import StepChoice, StepMode
from xsp_analyze.trace.step_view import StepView
from xsp_model import Trace, XspError


def stepless() -> Trace:
    hand = Hand()
    hand.run(0)
    hand.work("k", 10, 5, launch=3)
    return hand.build()


def test_choices_are_read_from_text() -> None:
    assert StepChoice.parse("mean") == StepChoice(StepMode.MEAN)
    assert StepChoice.parse("7") == StepChoice(StepMode.ONE, 7)
    assert str(StepChoice.parse("7")) == "7"
    with pytest.raises(XspError, match="'some' is no choice of steps"):
        StepChoice.parse("some")


def test_default_is_the_mean_step_where_there_are_steps_else_the_whole_trace() -> None:
    assert StepView.of(paper_trace()).choice.mode is StepMode.MEAN
    assert StepView.of(stepless()).choice.mode is StepMode.ALL


@pytest.mark.parametrize("steps", ["mean", "each", "3"])
def test_steps_of_a_trace_without_any_are_refused(steps: str) -> None:
    with pytest.raises(XspError, match="the trace has no steps"):
        StepView.of(stepless(), steps)


def test_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(XspError, match=r"no step 9\. Its steps are 1, 2"):
        StepView.of(paper_trace(), "9")


def test_latency_of_a_trace_without_steps_is_its_extent() -> None:
    # The launch starts at 3, the kernel ends at 15.
    view = StepView.of(stepless())
    assert run(find("A15"), view).table["model_latency_ns"].to_list() == [12]
    assert coverage.provenance(view)["model_latency_basis"] == "first start to last end of the trace"


def test_mean_leaves_out_a_step_that_the_profiler_only_opened() -> None:
    hand = Hand()
    hand.run(0)
    for number, start, length in ((1, 0, 100), (2, 100, 120), (3, 220, 1)):
        hand.step(number, start, length)
        if number < 3:
            hand.work("k", start + 10, 40, launch=start + 5, step=number)
    view = StepView.of(hand.build())
    assert run(find("A10"), view).table["duration_ns"].to_list() == [40.0]
    assert run(find("A01"), view).table["latency_ns"].to_list() == [100.0]  # the range; from end of work to end of work
    assert "step_without_device_work" in coverage.ledger(view)["kind"].to_list()


def test_mean_leaves_out_a_last_step_that_was_cut_and_the_ledger_says_so() -> None:
    hand = Hand()
    hand.run(0)
    for number, launches in ((1, 4), (2, 4), (3, 4), (4, 1)):
        hand.step(number, number * 100, 100 if launches == 4 else 30)
        for at in range(launches):
            hand.work("k", number * 100 + 10 + 20 * at, 10, launch=number * 100 + 5 + 20 * at, step=number)
    view = StepView.of(hand.build())
    assert view.steps["step"].to_list() == [1, 2, 3]
    assert "step_incomplete" in coverage.ledger(view)["kind"].to_list()
    assert StepView.of(view.trace, "each").steps["step"].to_list() == [1, 2, 3, 4]


def test_a_small_step_between_whole_ones_was_not_cut() -> None:
    hand = Hand()
    hand.run(0)
    for number, launches in ((1, 4), (2, 1), (3, 4), (4, 4)):
        hand.step(number, number * 100, 100)
        for at in range(launches):
            hand.work("k", number * 100 + 10 + 20 * at, 10, launch=number * 100 + 5 + 20 * at, step=number)
    assert StepView.of(hand.build()).steps["step"].to_list() == [1, 2, 3, 4]


def test_without_a_device_the_step_that_a_schedule_opened_last_is_left_out_by_its_operators() -> None:
    hand = Hand()
    hand.run(0)
    for number, length in ((7, 1_000), (8, 1)):
        step = hand.step(number, number * 1_000, length)
        if number == 7:
            hand.span("operator", "operator", "aten::mm", 7_010, 900, parent_id=step, step=7)
    view = StepView.of(hand.build())
    assert run(find("A01"), view).table["latency_ns"].to_list() == [1_000.0]
    assert view.faulty_steps.select("step", "fault").rows() == [(8, "empty")]


def waiting_steps(*waits: int) -> Trace:
    """Steps that synchronise for so long before they launch 50 ns of work, with nothing in the trace to wait for."""
    hand = Hand()
    hand.run(0)
    start = 0
    for number, wait in enumerate(waits):
        step = hand.step(number, start, wait + 80)
        hand.span("runtime", "call", "cudaStreamSynchronize", start + 1, wait, parent_id=step, step=number)
        hand.work("k", start + wait + 20, 50, launch=start + wait + 10, parent=step, step=number)
        start += wait + 100
    return hand.build()


def test_a_step_that_begins_in_a_wait_for_work_of_before_the_trace_is_left_out() -> None:
    view = StepView.of(waiting_steps(4_000, 10, 10, 10))
    assert view.faulty_steps.select("step", "fault").rows() == [(0, "waits")]
    assert view.steps["step"].to_list() == [1, 2, 3]
    assert "step_begins_in_wait" in coverage.ledger(view)["kind"].to_list()


def test_a_trace_of_no_step_but_such_is_taken_whole() -> None:
    view = StepView.of(waiting_steps(4_000))
    assert view.choice.mode is StepMode.ALL
    assert "steps_hold_little" in coverage.ledger(view)["kind"].to_list()


def test_latency_without_device_work_takes_every_step() -> None:
    hand = Hand()
    hand.run(0, batch_size=4)
    for number, start, length in ((1, 0, 100), (2, 100, 120), (3, 220, 170)):
        hand.step(number, start, length)
    table = run(find("A01"), StepView.of(hand.build())).table
    assert table.select("latency_ns", "median_ns").rows() == [(120.0, 120.0)]
    assert table["low_ns"][0] >= 100
    assert table["high_ns"][0] <= 170


def test_trimmed_mean_over_five_steps_drops_the_outlier() -> None:
    hand = Hand()
    hand.run(0)
    for number, duration in enumerate((10, 11, 12, 13, 1000)):
        hand.step(number, number * 5000, 5000)
        hand.work("k", number * 5000 + 10, duration, launch=number * 5000 + 5, step=number)
    assert run(find("A10"), StepView.of(hand.build())).table["duration_ns"].to_list() == [12.0]


def test_same_named_kernels_are_aligned_by_launch_not_by_start() -> None:
    # "k" is launched twice a step on two streams; in step 2 the second launch starts first.
    hand = Hand()
    hand.run(0)
    for number, begin, starts in ((1, 0, (20, 50)), (2, 1000, (1060, 1030))):
        hand.step(number, begin, 1000)
        for at, (start, duration) in enumerate(zip(starts, (10, 500), strict=True)):
            hand.work("k", start, duration, launch=begin + 2 + at * 8, step=number, stream_id=at, grid=1)
    table = run(find("A08"), StepView.of(hand.build())).table
    assert table["duration_ns"].to_list() == [10.0, 500.0]
