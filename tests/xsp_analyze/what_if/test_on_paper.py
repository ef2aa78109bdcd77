"""Small traces with gains worked out on paper: streams, events, copies that block, graphs, threads, communication."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.hand import US, Hand
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.what_if.answer import WhatIf, what_if
from xsp_analyze.what_if.changes import changes_of
from xsp_model import XspError

_SYNC = "cudaDeviceSynchronize"


class _Step(Hand):
    """One step of so many us; times are in us."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.run(0)
        self.step(0, 0, end * US, thread_id=1)

    def call(self, name: str, begin: int, end: int, thread: int = 1) -> int:
        """A call of the host; its span."""
        return self.span("runtime", "call", name, begin * US, (end - begin) * US, thread_id=thread, step=0)

    def kernel(self, name: str, launch: int, begin: int, end: int, stream: int = 7) -> None:
        """A kernel whose launch takes 5 us."""
        call = self.call("cudaLaunchKernel", launch, launch + 5)
        self.work(name, begin * US, (end - begin) * US, parent_id=call, stream_id=stream, step=0)

    def operator(self, name: str, begin: int, end: int, thread: int = 1) -> None:
        """An operator of the host."""
        self.span("operator", "operator", name, begin * US, (end - begin) * US, thread_id=thread, step=0)

    def answer(self, **changes: Any) -> WhatIf:  # noqa: ANN401 (options)
        """What changes gain of the whole job."""
        return what_if(StepView.of(self.build(), "all"), changes_of(**changes))

    def gain_us(self, **changes: Any) -> float:  # noqa: ANN401 (options)
        """The same, in us."""
        return self.answer(**changes).together.gain_ns / US


def _event() -> _Step:
    """The second stream waits for an event behind the first's kernel, and the host for both."""
    step = _Step(330)
    step.kernel("first", 0, 10, 210)
    step.call("cudaEventRecord", 6, 8)
    step.call("cudaStreamWaitEvent", 9, 11)
    step.kernel("second", 12, 211, 311, stream=8)
    step.call(_SYNC, 20, 320)
    return step


@pytest.mark.parametrize(("name", "gain_us"), [("first", 100), ("second", 50), (".*", 150)])
def test_behind_an_event_both_streams_count(name: str, gain_us: int) -> None:
    assert _event().gain_us(scale=[f"kernel:{name}=0.5"]) == gain_us


@pytest.mark.parametrize(("name", "gain_us"), [("long", 94), ("short", 0)])
def test_of_streams_side_by_side_the_longer_one_counts(name: str, gain_us: int) -> None:
    """Half as long, the longer one ends at 110, before the other at 116; both returns are alike, 10 us later."""
    step = _Step(230)
    step.kernel("long", 0, 10, 210)
    step.kernel("short", 6, 16, 116, stream=8)
    step.call(_SYNC, 12, 220)
    assert step.gain_us(scale=[f"kernel:{name}=0.5"]) == gain_us


def _blocking_copy() -> _Step:
    """A copy behind a kernel holds the host until 165; then the host works for 100 us."""
    step = _Step(270)
    step.kernel("k", 0, 10, 110)
    call = step.call("cudaMemcpy", 20, 165)
    step.work("Memcpy DtoH", 111 * US, 50 * US, parent_id=call, step=0, kind="memcpy")
    step.operator("aten::add", 165, 265)
    return step


@pytest.mark.parametrize(
    ("changes", "gain_us"),
    [
        ({"scale": ["kernel:k=0.5"]}, 50),
        ({"scale": ["kernel:Memcpy=0"]}, 50),
        ({"copies": "async"}, 270 - 161),  # the host would end at 130, the copy as before
        ({"copies": "async", "scale": ["kernel:k=0"]}, 270 - 130),
    ],
)
def test_a_copy_that_blocks_holds_the_host_until_what_was_launched_before_has_ended(
    changes: dict[str, Any], gain_us: int
) -> None:
    assert _blocking_copy().gain_us(**changes) == pytest.approx(gain_us, abs=6)


@pytest.mark.parametrize(
    ("changes", "gain_us"),
    [
        ({"communication": 0.5}, 100),
        ({"communication": 0}, 200),
        ({"overlap": True}, 90),  # the products end at 200, but the host waits until the rest has ended at 310
        ({"overlap": True, "communication": 0}, 200),
    ],
)
def test_what_communicates_can_be_beside_what_computes_but_products_stay_in_a_row(
    changes: dict[str, Any], gain_us: int
) -> None:
    step = _Step(420)
    step.kernel("sgemm", 0, 10, 110)
    step.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 6, 110, 310)
    step.kernel("sgemm", 12, 310, 400)
    step.call(_SYNC, 20, 405)
    assert step.gain_us(**changes) == gain_us


def test_a_kernel_of_a_graph_is_gained_where_its_launch_is_waited_for() -> None:
    step = _Step(200)
    call = step.call("cudaGraphLaunch", 0, 10)
    for number in range(3):
        step.work(f"k{number}", (20 + 41 * number) * US, 40 * US, parent_id=call, step=0)
    step.call("cudaStreamSynchronize", 10, 148)
    assert step.gain_us(scale=["kernel:k1=0.5"]) == 20


def test_ten_launches_of_a_step_become_one() -> None:
    """One launch of 5 us, 10 us until the first kernel (5 of them in the call), ten of 5 us, 10 us until the return."""
    step = _Step(300)
    for number in range(10):
        step.kernel("k", 20 * number, 20 * number + 10, 20 * number + 15)
    step.call(_SYNC, 190, 205)
    assert step.gain_us(graph=["steps"]) == 300 - (10 + 50 + 10)


def test_each_step_of_each_rank_has_a_launch_of_its_own_where_steps_are_graphs() -> None:
    """Two ranks at once, three steps end to end, five launches each: one of 10 us is left, then kernels in a row.

    12 us to the first, and 15 of 3 us; 7 us more, as the second one is taken to be on its way when the call has ended.
    """
    hand = Hand()
    for rank in range(2):
        hand.run(rank, rank=rank)
        for number in range(3):
            here: dict[str, Any] = {"run_id": rank, "process_id": rank, "step": number}
            begin = 100 * number
            hand.step(number, begin * US, 100 * US, thread_id=1, run_id=rank, process_id=rank)
            for launch in range(begin, begin + 100, 20):
                call = hand.span("runtime", "call", "cudaLaunchKernel", launch * US, 10 * US, thread_id=1, **here)
                hand.work("k", (launch + 12) * US, 3 * US, parent_id=call, **here)
    gain = what_if(StepView.of(hand.build(), "all"), changes_of(graph=["steps"])).together.gain_ns
    assert gain / US == 300 - (12 + 15 * 3 + 7)


def test_a_fused_chain_loses_its_launches() -> None:
    step = _Step(100)
    for number in range(3):
        step.kernel("vectorized_elementwise_kernel", 20 * number, 20 * number + 10, 20 * number + 18 + number)
    step.call(_SYNC, 46, 64)
    assert step.gain_us(fuse=True) == 10


def test_a_thread_that_waits_for_another_is_earlier_where_that_is() -> None:
    """290 us on the second thread, 20 us later 150 us on the first, which did nothing before."""
    step = _Step(500)
    step.operator("aten::load", 0, 290, thread=2)
    step.operator("aten::mm", 310, 460)
    gain = step.answer(scale=["operator:aten::load=0.5"])
    assert (gain.together.gain_ns / US, gain.together.low_ns) == (145, 0)
    assert any("guessed" in caveat for caveat in gain.caveats)
    assert step.gain_us(host=0.5) == 240


def waiting_on_nothing() -> _Step:
    """A step without device work."""
    step = _Step(100)
    step.operator("aten::add", 0, 90)
    return step


def test_what_changes_nothing_says_so() -> None:
    assert waiting_on_nothing().answer(overlap=True).caveats
    caveats = _event().answer(overlap=True, host=0.5).caveats
    assert "--overlap changes nothing: the steps have none of what it is about." in caveats
    assert not any("--host" in caveat for caveat in caveats)


_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def _ranks(*, ahead_us: int = 0) -> Hand:
    """Two ranks sum up after 100 us and 300 us of products, which takes 50 us; then each waits 5 us for its device.

    The second rank's clock is ahead.
    """
    hand = Hand()
    for rank, products in enumerate((100, 300)):
        hand.run(rank, rank=rank)
        at = rank * ahead_us
        here: dict[str, Any] = {"run_id": rank, "process_id": rank, "step": 0}
        hand.step(0, at * US, 400 * US, thread_id=1, run_id=rank, process_id=rank)
        for name, launch, begin, end in (("sgemm", 0, 10, 10 + products), (_ALL_REDUCE, 6, 10 + products, 360)):
            call = hand.span("runtime", "call", "cudaLaunchKernel", (at + launch) * US, 5 * US, thread_id=1, **here)
            hand.work(name, (at + begin) * US, (end - begin) * US, parent_id=call, **here)
        hand.span("runtime", "call", _SYNC, (at + 20) * US, 345 * US, thread_id=1, **here)
    return hand


@pytest.mark.parametrize("ahead_us", [0, 7_000_000])
@pytest.mark.parametrize(
    ("changes", "gain_us"),
    [
        ({"communication": 0}, 50),
        ({"scale": ["kernel:sgemm=0.5"]}, 150),  # of the second rank, which all wait for
        ({"scale": ["kernel:sgemm=0"], "communication": 0}, 340),  # the host alone takes 60
        ({"balance": True}, 100),  # the first rank gains 200, the second nothing
    ],
)
def test_a_collective_ends_when_the_last_rank_has_come(ahead_us: int, changes: dict[str, Any], gain_us: int) -> None:
    answer = what_if(StepView.of(_ranks(ahead_us=ahead_us).build(), "mean"), changes_of(**changes))
    assert answer.together.gain_ns / US == pytest.approx(gain_us, abs=1)
    assert answer.step_ns == 400 * US
    assert sum(answer.path.values()) == pytest.approx(400 * US)
    assert answer.path["matrix product"] == 300 * US  # of both ranks' paths


def test_to_balance_takes_several_ranks() -> None:
    with pytest.raises(XspError, match="all ranks"):
        _event().answer(balance=True)
