"""B06: which work is a module's, and that none counts twice."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError


def tree(hand: Hand) -> list[tuple[object, ...]]:
    table = run(find("B06"), StepView.of(hand.build())).table
    columns = ("module_path", "phase", "count", "host_ns", "device_sum_ns", "self_device_sum_ns")
    return table.select(columns).rows()


def test_an_instance_called_within_itself_counts_once() -> None:
    hand = Hand()
    hand.run(0)
    outer = hand.module("A_0", 0, 100, self_host=20)
    middle = hand.module("A_0.B_0", 10, 80, self_host=30, parent_id=outer)
    inner = hand.module("A_0.B_0.A_0", 20, 50, 0, parent_id=middle)
    hand.work("k", 30, 7, launch=25, parent=inner, layer=inner, phase="forward")
    assert tree(hand) == [
        ("A_0", "forward", 1, 100, 7, 0),
        ("A_0.B_0", "forward", 1, 80, 7, 0),
        ("A_0.B_0.A_0", "forward", 1, 0, 0, 7),
    ]


def test_recomputed_work_is_its_own_phase() -> None:
    hand = Hand()
    hand.run(0)
    first = hand.module("A_0", 0, 100, 0)
    second = hand.module("A_0", 500, 100, 0, phase="recompute")
    hand.work("k", 10, 7, launch=5, parent=first, layer=first, phase="forward")
    hand.work("k", 510, 9, launch=505, parent=second, layer=second, phase="recompute")
    assert tree(hand) == [("A_0", "forward", 1, 100, 7, 7), ("A_0", "recompute", 1, 100, 9, 9)]


def test_backward_inside_a_module_that_runs_the_whole_step_counts_there_once() -> None:
    # Train_0 calls Linear_0, then runs its backward itself: inside Train_0's own call, so not again as its backward.
    # As the layers have it, it is Linear_0's own, and Train_0's no more.
    hand = Hand()
    hand.run(0)
    train = hand.module("Train_0", 0, 1000, self_host=900)
    linear = hand.module("Train_0.Linear_0", 10, 100, 0, parent_id=train)
    hand.work("k", 20, 7, launch=15, parent=linear, layer=linear, phase="forward")
    hand.work("k_bw", 520, 11, launch=500, parent=train, layer=linear, phase="backward")
    assert tree(hand) == [
        ("Train_0", "forward", 1, 1000, 18, 0),
        ("Train_0.Linear_0", "forward", 1, 100, 7, 7),
        ("Train_0.Linear_0", "backward", 1, None, 11, 11),
    ]


def test_replayed_kernels_are_inside_the_module_that_launched_the_graph_but_not_its_own() -> None:
    # They may be of any module that it calls: A11 has them in a row of their own, and coverage as graph replay.
    hand = Hand()
    hand.run(0)
    module = hand.module("Decoder_0", 0, 100, 0)
    for start in (50, 60):
        hand.work("k", start, 5, launch=20, parent=module, attribution="graph_replay")
    assert tree(hand) == [("Decoder_0", "forward", 1, 100, 10, 0)]


def test_replayed_kernels_are_the_own_of_the_module_that_they_were_captured_in() -> None:
    # Captured in Decoder_0.Linear_0, replayed by Runner_0: inside Runner_0, but as the layers have it Linear_0's own.
    hand = Hand()
    hand.run(0)
    decoder = hand.module("Decoder_0", 0, 50, 10)
    linear = hand.module("Decoder_0.Linear_0", 10, 30, 0, parent_id=decoder)
    runner = hand.module("Runner_0", 100, 50, 0)
    hand.work("k", 160, 5, launch=120, parent=runner, layer=linear)
    assert tree(hand) == [
        ("Decoder_0", "forward", 1, 50, 5, 0),
        ("Decoder_0.Linear_0", "forward", 1, 30, 5, 5),
        ("Runner_0", "forward", 1, 50, 5, 0),
    ]


def test_modules_without_device_work_have_their_host_time() -> None:
    hand = Hand()
    hand.run(0)
    hand.module("A_0", 0, 100, 0)
    assert tree(hand) == [("A_0", "forward", 1, 100, None, None)]  # nothing recorded any: its time is unknown
    hand.work("k", 200, 7)
    assert tree(hand) == [("A_0", "forward", 1, 100, 0, 0)]


def test_trace_without_modules_is_refused_in_one_sentence() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("k", 10, 5, launch=3)
    with pytest.raises(XspError, match=r"B06 .* needs the level module, which this trace does not hold"):
        run(find("B06"), StepView.of(hand.build()))


def test_a_module_that_was_compiled_away_has_no_host_time() -> None:
    # the second call of Linear_0 is only known from the compiler: of both together the time is unknown, of ReLU_0 too
    hand = Hand()
    hand.run(0)
    hand.module("Linear_0", 0, 100, 0)
    hand.module("GELU_0", 100, 30, 1)
    for name, start, index in (("Linear_0", 200, 0), ("ReLU_0", 210, 2)):
        hand.module(name, start, 0, index)
        hand.rows["spans"][-1]["duration_ns"] = None
    table = run(find("B06"), StepView.of(hand.build())).table
    assert table.select("module_path", "count", "host_ns", "self_host_ns").rows() == [
        ("Linear_0", 2, None, None),
        ("GELU_0", 1, 30, 30),
        ("ReLU_0", 1, None, None),
    ]
