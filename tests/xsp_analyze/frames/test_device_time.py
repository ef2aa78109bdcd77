"""What each device did with its time, worked out by hand."""

from __future__ import annotations

from tests.helpers.hand import Hand
from xsp_analyze.frames.device_time import device_time
from xsp_analyze.trace.step_view import StepView


def test_copies_of_a_collective_are_communication() -> None:
    """Copy engines gather for 300 ns, 200 of them beside a kernel, and copy 50 of the program's own."""
    hand = Hand()
    hand.run(0)
    gather = hand.span("operator", "operator", "c10d::_allgather_base_", 0, 50, thread_id=1)
    copy = hand.span("operator", "operator", "aten::copy_", 60, 50, thread_id=1)
    hand.work("Memcpy PtoP (Device -> Device)", 100, 300, launch=10, parent=gather, kind="memcpy", thread_id=1)
    hand.work("sgemm", 200, 400, launch=55, thread_id=1)
    hand.work("Memcpy PtoP (Device -> Device)", 700, 50, launch=70, parent=copy, kind="memcpy", thread_id=1)
    parts = device_time(StepView.of(hand.build())).parts
    names = ("compute_ns", "communication_ns", "compute_communication_ns", "memory_ns")
    assert parts.select(names).row(0) == (400, 300, 200, 50)
