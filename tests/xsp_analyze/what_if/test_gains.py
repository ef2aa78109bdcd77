"""Gains worked out by hand, and what holds of them whatever the trace: they are monotone, bounded and commute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import US, Hand, waiting_loop
from tests.helpers.planted.model import simulate
from tests.helpers.planted.parts import Plan
from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.what_if.answer import what_if
from xsp_analyze.what_if.changes import Change, changes_by_name, changes_of
from xsp_analyze.what_if.graph import GUESSED, task_graph
from xsp_analyze.what_if.path import slack
from xsp_analyze.what_if.replay import fit, fitted_replay, replay
from xsp_analyze.what_if.simulate import simulation
from xsp_analyze.what_if.waits import Edge
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace


def _gain(trace: Trace, **changes: Any) -> float:  # noqa: ANN401 (options)
    return what_if(StepView.of(trace, "mean"), changes_of(**changes)).together.gain_ns / US


def test_a_kernel_that_the_host_waits_for_is_gained_whole() -> None:
    assert _gain(waiting_loop().build(), scale=["kernel:sgemm=0.5"]) == 200
    assert _gain(waiting_loop().build(), scale=["class:matrix product=0"]) == 400


def test_input_and_host_are_gained_by_themselves() -> None:
    assert _gain(waiting_loop().build(), input=0) == 100
    assert _gain(waiting_loop().build(), host=0.5) == pytest.approx(150, abs=15)  # the operator; of calls a little


def test_a_thread_that_waits_for_another_s_input_is_earlier_with_it() -> None:
    """Input is fetched for 2 ms in a range, not an operator; then the first thread works, and the second after it."""
    hand = Hand()
    hand.run(0)
    for number in range(4):
        at = number * 3_000 * US
        step = hand.step(number, at, 3_000 * US, thread_id=1)
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        hand.span("application", "range", loader, at, 2_000 * US, thread_id=1, step=number, parent_id=step)
        hand.span("operator", "operator", "aten::mm", at + 2_000 * US, 400 * US, thread_id=1, step=number)
        hand.span("operator", "operator", "MmBackward0", at + 2_420 * US, 500 * US, thread_id=2, step=number)
        hand.work("sgemm", at + 2_910 * US, 20 * US, launch=at + 2_900 * US, thread_id=2, step=number)
        hand.span("operator", "operator", "aten::add_", at + 2_940 * US, 50 * US, thread_id=1, step=number)
    assert _gain(hand.build(), input=0) == 2_000


def test_without_the_wait_host_and_device_overlap() -> None:
    # A step of 820 us: 405 of the host, then 415 until the kernel has run. Side by side two steps take 405 each, and
    # the last one until its kernel has ended; nothing is left of two waits, but for what a call takes.
    assert _gain(waiting_loop().build(), no_sync=True) == pytest.approx(2 * 415 / 3, abs=5)


def test_what_the_host_hides_gains_nothing() -> None:
    trace = waiting_loop(kernel_us=100, sync=False, steps=5).build()
    assert _gain(trace, scale=["kernel:sgemm=0.5"]) == 50 / 4  # of the last of four, the first is ramp-up


def test_without_steps_the_job_ends_where_a_thread_waits_last_for_what_another_launched() -> None:
    """As a backward pass: the second thread launches most, at once, and the first waits 1 ms for ten kernels."""
    hand = Hand()
    hand.run(0)
    hand.work("sgemm", 20 * US, 100 * US, launch=10 * US, thread_id=1)
    for number in range(9):
        hand.work("sgemm", (120 + 100 * number) * US, 100 * US, launch=(20 + 10 * number) * US, thread_id=2)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 110 * US, 915 * US, thread_id=1)
    answer = what_if(StepView.of(hand.build(), "all"), changes_of(scale=["kernel:sgemm=0.5"]))
    assert answer.together.gain_ns / US == pytest.approx(500, abs=20)


def _with_backward_thread(*, load_us: int = 5) -> Trace:
    """Per step the host is quiet for 200 us and works for 95; 20 us later a thread of its own works for 300 us.

    That one launches a kernel of 100 us at its end, and the first thread waits for it.
    """
    hand = Hand()
    hand.run(0)
    for number in range(3):
        at = number * 1000 * US
        here: dict[str, Any] = {"step": number}
        hand.step(number, at, 1000 * US, thread_id=1)
        hand.span("operator", "operator", "aten::add", at + 200 * US, 95 * US, thread_id=1, phase="forward", **here)
        back = {"thread_id": 2, "phase": "backward", **here}
        hand.span("operator", "operator", "AddBackward", at + 315 * US, 300 * US, **back)
        begin = at + (615 - load_us) * US
        call = hand.span("runtime", "call", "cudaLaunchKernel", begin, load_us * US, **back)
        hand.work("k", at + 620 * US, 100 * US, parent_id=call, **here)
        hand.span("runtime", "call", "cudaDeviceSynchronize", at + 620 * US, 110 * US, thread_id=1, **here)
    return hand.build()


def test_the_thread_of_the_backward_pass_begins_earlier_where_the_forward_pass_ends_earlier() -> None:
    # Of 1000 us the kernel takes 100, its launch 10, its wait 10, and two hand-overs 25: the rest is of the host.
    assert _gain(_with_backward_thread(), host=0) == pytest.approx(850, abs=20)
    assert _gain(_with_backward_thread(), python=0) == pytest.approx(470, abs=5)  # 200 before, 270 at the end


def test_a_launch_that_loads_what_it_launches_is_time_of_the_host() -> None:
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 5000 * US, thread_id=1)
    call = hand.span("runtime", "call", "cudaLaunchKernel", 100 * US, 4000 * US, thread_id=1, step=0)
    hand.work("k", 4110 * US, 100 * US, parent_id=call, step=0)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 4100 * US, 120 * US, thread_id=1, step=0)
    assert _gain(hand.build(), host=0) == pytest.approx(4880, abs=10)


def test_a_host_that_no_longer_waits_does_not_make_the_last_step_longer() -> None:
    # Device work of 400 us a step hides a host of 405: what is gained is the host before the first of the steps.
    gains = [_gain(waiting_loop(sync=False, steps=6).build(), host=factor) for factor in (1, 0.5, 0)]
    assert gains == sorted(gains)
    assert gains[0] == 0


@pytest.mark.parametrize("steps", ["mean", "all", "1"])
def test_the_path_of_the_steps_chosen_is_as_long_as_they_are(steps: str) -> None:
    answer = what_if(StepView.of(waiting_loop(steps=5).build(), steps), changes_of(host=0.5))
    assert sum(answer.path.values()) == pytest.approx(answer.step_ns)
    assert sum(answer.together.path.values()) == pytest.approx(answer.together.step_ns)


def test_changes_are_made_in_the_steps_chosen() -> None:
    trace = waiting_loop(steps=5).build()
    one = what_if(StepView.of(trace, "1"), changes_of(scale=["kernel:sgemm=0.5"])).together
    every = what_if(StepView.of(trace, "all"), changes_of(scale=["kernel:sgemm=0.5"])).together
    assert (one.gain_ns / US, every.gain_ns / US) == (200, 1000)


def test_a_path_that_begins_within_a_step_tells_no_gain() -> None:
    """The job ends with work of a stream that a thread launched of which nothing is known before."""
    hand = waiting_loop(steps=1)
    call = hand.span("runtime", "call", "cudaLaunchKernel", 700 * US, 5 * US, thread_id=9, step=0, process_id=2)
    hand.work("k", 710 * US, 400 * US, parent_id=call, stream_id=8, step=0, process_id=2)
    with pytest.raises(XspError, match="begins within a step"):
        _gain(hand.build(), host=0.5)


@pytest.mark.parametrize(("gap_us", "is_told"), [(1, True), (50, False)])
def test_work_launched_before_the_trace_is_no_doubt_where_it_runs_from_a_queue(gap_us: int, *, is_told: bool) -> None:
    hand = Hand()
    hand.run(0)
    hand.step(0, 0, 1000 * US, thread_id=1)
    for number in range(4):
        hand.work("sgemm", number * (100 + gap_us) * US, 100 * US, step=0)
    end = 4 * (100 + gap_us) * US
    hand.work("sgemm", end, 50 * US, launch=5 * US, thread_id=1, step=0)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 10 * US, end + 45 * US, thread_id=1, step=0)
    assert (not simulation(StepView.of(hand.build(), "all")).confidence.refusals) == is_told


def test_slack_is_what_may_be_later() -> None:
    trace = waiting_loop(kernel_us=100, sync=False, steps=3).build()
    assert slack(StepView.of(trace).of_trace)["slack_ns"].to_list()[-1] == 0
    assert slack(StepView.of(trace).of_trace)["slack_ns"][0] > 300 * US


def test_a_replay_that_is_off_tells_no_gain() -> None:
    hand = waiting_loop(sync=False)
    call = hand.span("runtime", "call", "cudaLaunchKernel", 10 * US, 5 * US, thread_id=1, step=0)
    hand.work("late", 50_000 * US, 10 * US, parent_id=call, step=0)
    with pytest.raises(XspError, match="no gain can be told"):
        _gain(hand.build(), host=0.5)


@pytest.mark.parametrize(
    "text", ["attention=0.5", "class:x=-1", "class:x=nan", "colour:red=1", "class:x=1e300", "class:x=", "class:=1"]
)
def test_a_scale_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(XspError):
        Change.scale(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"host": True}, {"host": [1]}, {"host": 1e300}, {"on": 5, "host": 1}, {"scale": [3]}, {"scale": 3},
        {"graph": [""]}, {"no_sync": "yes"}, {"copies": 3}, {"hots": 1}, {"scale": None}, {},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_change_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(XspError):
        what_if(StepView.of(waiting_loop().build(), "mean"), changes_by_name(changes))


def test_one_text_is_one_change() -> None:
    assert changes_by_name({"scale": "class:x=0.5", "graph": "layers"}) == [
        Change("scale", "class:x", 0.5),
        Change("graph", "layers"),
    ]


def test_another_device_asks_for_the_host() -> None:
    with pytest.raises(XspError, match="another host"):
        changes_of(on="H100 SXM5")


_work = st.tuples(
    st.integers(0, 40), st.integers(0, 60), st.integers(0, 80), st.sampled_from([7, 8]), st.sampled_from([1, 2]),
    st.sampled_from(["", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaFree"]),
)  # fmt: skip
_WORKLOADS = st.lists(_work, min_size=1, max_size=20)


def _trace(work: Sequence[tuple[int, int, int, int, int, str]], *, shift: int = 0, shuffle: int | None = None) -> Trace:
    """Launches one after the other on two threads, each after some work of the host; then perhaps a wait."""
    hand = Hand()
    hand.run(0)
    at = {1: 0, 2: 0}
    spans = []
    for before, latency, duration, stream, thread, wait in work:
        begin = at[thread] + before * US
        spans.append((begin, latency, duration, stream, thread))
        at[thread] = begin + 5 * US
        if wait:
            end = max(begin + (5 + latency + duration) * US, at[thread] + 1)
            hand.span("runtime", "call", wait, at[thread], end - at[thread], thread_id=thread, step=1)
            at[thread] = end
    hand.step(1, 0, max(at.values()) + US, thread_id=1)
    free = {7: 0, 8: 0}
    for begin, latency, duration, stream, thread in sorted(spans):
        start = max(begin + latency * US, free[stream])
        hand.work("k", start, duration * US, launch=begin, stream_id=stream, thread_id=thread, step=1)
        free[stream] = start + duration * US
    return hand.build(shift=shift, shuffle=shuffle)


@given(_WORKLOADS)
def test_the_fitted_replay_is_what_was_recorded(work: list[tuple[int, int, int, int, int, str]]) -> None:
    graph = task_graph(StepView.of(_trace(work)).of_trace)
    assert np.array_equal(replay(graph, fit(graph)).time_ns, graph.time_ns)
    for kind in GUESSED:
        less = graph.without([kind])
        assert np.array_equal(replay(less, fit(less)).time_ns, graph.time_ns)


@given(_WORKLOADS)
def test_to_scale_by_one_changes_nothing(work: list[tuple[int, int, int, int, int, str]]) -> None:
    made = simulation(StepView.of(_trace(work)))
    assert made.gain([Change("host", "", 1.0), Change("scale", "class:.*", 1.0)]).gain_ns == 0


@given(_WORKLOADS, st.sampled_from(["host", "scale"]), st.floats(0, 1), st.floats(0, 1))
def test_gains_are_monotone_and_never_more_than_what_is_taken_off(
    work: list[tuple[int, int, int, int, int, str]], what: str, one: float, other: float
) -> None:
    made = simulation(StepView.of(_trace(work)))
    part = "class:.*" if what == "scale" else ""
    less, more = (made.gain([Change(what, part, factor)]).gain_ns for factor in (max(one, other), min(one, other)))
    graph = made.graph
    time = int(graph.work["duration_ns"].sum()) if part else int((graph.host.end - graph.host.start).sum())
    rounding = len(graph.source)
    assert -rounding <= less <= more + rounding
    assert more <= (1 - min(one, other)) * time + rounding


@given(_WORKLOADS)
def test_changes_commute(work: list[tuple[int, int, int, int, int, str]]) -> None:
    made = simulation(StepView.of(_trace(work)))
    changes = [Change("host", "", 0.3), Change("scale", "class:.*", 0.7), Change("no-sync")]
    assert made.gain(changes).step_ns == made.gain(changes[::-1]).step_ns


@given(_WORKLOADS, st.integers(0, 9))
def test_neither_order_nor_shift_matters(work: list[tuple[int, int, int, int, int, str]], seed: int) -> None:
    changes = [Change("host", "", 0.5)]
    plain = simulation(StepView.of(_trace(work))).gain(changes)
    moved = simulation(StepView.of(_trace(work, shift=10**9, shuffle=seed))).gain(changes)
    assert (moved.step_ns, moved.gain_ns) == (plain.step_ns, plain.gain_ns)


@given(_WORKLOADS)
def test_machine_code_and_python_agree(work: list[tuple[int, int, int, int, int, str]]) -> None:
    view = StepView.of(_trace(work)).of_trace
    plain = task_graph(view)
    with override_limits(sweep_min_rows=0):
        fast = task_graph(view)
        replayed = replay(fast, fit(fast))
    for name in ("time_ns", "first", "source", "weight", "kind"):
        assert np.array_equal(getattr(plain, name), getattr(fast, name))
    expected = replay(plain, fit(plain))
    assert np.array_equal(expected.time_ns, replayed.time_ns)
    for got, want in zip(replayed.backwards(0), expected.backwards(0), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "change"),
    [(Edge.SYNC, Change("scale", "kernel:sgemm", 0.5)), (Edge.LAUNCH, Change("host", "", 0.5))],
    ids=["wait", "launch"],
)
def test_without_an_edge_what_it_stands_for_is_not_gained(kind: Edge, change: Change) -> None:
    made = simulation(StepView.of(waiting_loop().build()))
    without = type(made)(made.view, fitted_replay(made.graph.without([kind])))
    assert without.gain_ns([change]) < made.gain_ns([change])


def test_ranks_of_which_one_is_slow_are_replayed_by_their_collectives_alone(tmp_path: Path) -> None:
    """A job of three ranks that sum up gradients beside the backward pass; its law is the replay's own."""
    traces = simulate(Plan(ranks=3, steps=2, slower=0.2))
    paths = [trace.write(tmp_path / f"rank{rank}.json") for rank, trace in enumerate(traces)]
    made = simulation(StepView.of(convert(paths, Options())))
    assert made.confidence.worst_error < 0.001
    apart = made.graph.without([Edge.RANKS])
    periods = (replay(graph, graph.weight).periods["period_ns"] for graph in (made.graph, apart))
    joined, alone = (each.to_numpy() for each in periods)
    assert (joined - alone).max() > 0.1 * made.step_ns
    assert made.gain_ns([Change("communication")]) < 0.02 * made.step_ns < made.gain_ns([Change("balance")])


_ON_A100 = Path(__file__).parents[3] / "fixtures" / "torch_profiler" / "transformer_train_a100_synthetic"


def test_at_their_roofs_products_take_what_their_shapes_ask_for() -> None:
    made = simulation(StepView.of(convert([_ON_A100], Options())))
    part = "class:matrix product"
    roof, gone = Change("roof", part), Change("scale", part)
    assert 0 < made.gain_ns([roof]) < made.gain_ns([gone])
    times = made.program.times([roof]).work
    is_product = (made.graph.work["kernel_class"].cast(str) == "matrix product").to_numpy()
    assert (times[~is_product] == 1).all()
    assert ((times > 0) & (times <= 1)).all()
    assert (times[is_product] < 1).any()
    assert str(roof) == "--scale class:matrix product=roof"


@pytest.mark.parametrize(
    ("scale", "message"), [("class:optimizer=roof", "no roof is known"), ("range:.*=roof", "no device work")]
)
def test_what_has_no_roof_is_refused(scale: str, message: str) -> None:
    view = StepView.of(convert([_ON_A100], Options()))
    with pytest.raises(XspError, match=message):
        what_if(view, changes_of(scale=[scale]))


def test_findings_together_gain_no_less_than_the_best_and_no_more_than_all_bounds() -> None:
    advice = [one for one in advise(StepView.of(convert([_ON_A100], Options()))) if one.simulated_ns]
    first = advice[:3]
    alone = [one.simulated_ns or 0.0 for one in first]
    together = first[0].together_ns
    assert together is not None
    assert max(alone) <= together <= sum(one.gain_ns or 0.0 for one in first)
    assert together == pytest.approx(sum(alone), rel=0.01)  # here, as each takes time off the same kernels
