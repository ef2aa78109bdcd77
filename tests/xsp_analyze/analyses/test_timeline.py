"""B03: unions and overlaps per device."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.idle import CAUSES
from xsp_analyze.trace.step_view import StepView

_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_times_are_unions_and_what_is_exposed_adds_up_to_busy() -> None:
    # compute [0,100) and [50,120): 120. communication [100,180): 80, of which 20 beside compute.
    # copies [170,200) and [300,310): 40, of which 10 beside communication. Idle: [200,300).
    hand = Hand()
    hand.run(0)
    hand.work("gemm", 0, 100)
    hand.work("gemm", 50, 70, stream_id=8)
    hand.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 100, 80, stream_id=9)
    hand.work("Memcpy DtoH", 170, 30, kind="memcpy")
    hand.work("Memset", 300, 10, kind="memset")
    hand.work("whole graph", 5, 10, kind="graph", device_id=1)
    table = run(find("B03"), StepView.of(hand.build())).table
    assert table.drop("idle_share", *CAUSES).rows(named=True) == [
        {
            "run_id": 0,
            "device_id": 0,
            "window_ns": 310,
            "active_ns": 310,
            "busy_ns": 210,
            "earlier_ns": 0,
            "idle_ns": 100,
            "compute_ns": 120,
            "communication_ns": 80,
            "memory_ns": 40,
            "compute_communication_ns": 20,
            "exposed_communication_ns": 60,
            "exposed_memory_ns": 30,
        },
        {
            "run_id": 0,
            "device_id": 1,
            "window_ns": 310,
            "active_ns": 10,
            "busy_ns": 10,
            "earlier_ns": 0,
            "idle_ns": 300,
            "compute_ns": 10,
            "communication_ns": 0,
            "memory_ns": 0,
            "compute_communication_ns": 0,
            "exposed_communication_ns": 0,
            "exposed_memory_ns": 0,
        },
    ]
    assert table["idle_share"].to_list() == [100 / 310, 300 / 310]


def test_steps_are_measured_apart_then_averaged() -> None:
    # Step 1: [10,20) and [30,40) in [0,100): active 30, busy 20. Step 2: [110,140), from the end of earlier work at 40:
    # window 100, busy 30.
    hand = Hand()
    hand.run(0)
    for number, start in ((1, 0), (2, 100)):
        hand.step(number, start, 100)
    for start, duration, number in ((10, 10, 1), (30, 10, 1), (110, 30, 2)):
        hand.work("k", start, duration, launch=start - 5, step=number)
    trace = hand.build()
    each = run(find("B03"), StepView.of(trace, "each")).table
    assert each.select("step", "device_id", "window_ns", "active_ns", "busy_ns").rows() == [
        (1, 0, 100, 30, 20),
        (2, 0, 100, 30, 30),
    ]
    assert run(find("B03"), StepView.of(trace)).table.select("window_ns", "busy_ns", "idle_ns").rows() == [
        (100.0, 25.0, 75.0)
    ]


def test_idle_time_is_told_by_what_the_host_did_before_the_next_launch() -> None:
    # Gaps: [0, 10), launched at 0: launch 10. [20, 60), next launched at 50 after a call [10, 35) that waited until 20:
    # sync 15, and 10 of the host's 15 behind it, as it had waited for 10; host 5, launch 10. [70, 80), next launched
    # at 65: launch 10. [90, 100), launch unknown.
    hand = Hand()
    hand.run(0)
    hand.work("a", 10, 10, launch=0)
    hand.span("runtime", "call", "cudaStreamSynchronize", 10, 25)
    hand.span("runtime", "call", "cudaMemcpyAsync", 40, 5)
    hand.work("b", 60, 10, launch=50)
    hand.work("c", 80, 10, launch=65)
    hand.work("d", 100, 10)
    table = run(find("B03"), StepView.of(hand.build())).table
    assert table.select("idle_ns", *CAUSES).rows() == [(70, 25, 10, 0, 5, 0, 20, 10)]


def test_work_too_short_for_the_clock_still_parts_and_bounds_idle_time() -> None:
    # Kernels of 0 ns at 10, 50 and 90 around [20, 30) and [70, 80). [0, 10): start-up 10. [10, 20),
    # launched at 12: host 2, launch 8.
    # [30, 50), launched at 45: host 15, launch 5. [50, 70), launched at 65: host 15, launch 5. [80, 90), launched at
    # 80: launch 10. Were the one at 50 not seen, the host would seem to have waited until 65.
    hand = Hand()
    hand.run(0)
    for start, duration, launch in ((10, 0, 0), (20, 10, 12), (50, 0, 45), (70, 10, 65), (90, 0, 80)):
        hand.work("k", start, duration, launch=launch)
    table = run(find("B03"), StepView.of(hand.build())).table
    assert table.select("window_ns", "active_ns", "idle_ns", *CAUSES).rows() == [(90, 80, 70, 0, 10, 0, 32, 0, 28, 0)]


def test_idle_time_is_explained_by_the_outermost_call_of_the_thread_that_launched_next() -> None:
    # Thread 1 launches at 5 (work [10, 20)), fetches input in [30, 60), which waits for the device in [40, 50), and
    # launches at 70 (work [80, 90)). Thread 2 waits in [15, 26) for what ends at 20, and fetches ahead in [20, 66). The
    # device is idle in [20, 80): 6 sync of the other thread, 5 behind it (4 until the loader, 1 after it) as it had
    # waited for 5, 30 input of the loader, 9 host, 10 launch. Waits in [60, 66), when nothing runs, wait for nothing.
    # Before the first work [0, 10) is start-up, of which 4 in a call.
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaDeviceGetAttribute", 0, 4, thread_id=1)
    hand.work("a", 10, 10, launch=5, thread_id=1)
    hand.span("application", "range", _LOADER, 30, 30, thread_id=1)
    hand.span("runtime", "call", "cudaStreamSynchronize", 40, 10, thread_id=1)
    hand.span("runtime", "call", "cudaStreamSynchronize", 15, 11, thread_id=2)
    hand.span("runtime", "call", "cudaStreamSynchronize", 60, 6, thread_id=2)
    hand.span("operator", "operator", "IteratorGetNext", 20, 46, thread_id=3)
    hand.work("b", 80, 10, launch=70, thread_id=1)
    frames = StepView.of(hand.build())
    causes = dict(zip(CAUSES, run(find("B03"), frames).table.select(CAUSES).row(0), strict=True))
    assert causes == {
        "idle_sync_ns": 11, "idle_initialisation_ns": 10, "idle_input_ns": 30, "idle_host_ns": 9,
        "idle_profiler_ns": 0, "idle_launch_ns": 10, "idle_unknown_ns": 0,
    }  # fmt: skip
    calls = run(find("B16"), frames).table.select("cause", "call", "idle_ns", "gap_count").rows()
    assert calls == [
        ("input", _LOADER, 30, 1),
        ("sync", "cudaStreamSynchronize", 11, 3),
        ("launch", None, 10, 1),
        ("host", None, 9, 1),
        ("initialisation", None, 6, 2),
        ("initialisation", "cudaDeviceGetAttribute", 4, 1),
    ]


def test_busy_time_is_all_work_in_the_window_whoever_launched_it() -> None:
    # Step 1 [0, 100) launches [10, 130) on a stream, [20, 60) on another; it ends at 130. Step 2 launches [140, 190).
    # A third stream runs work of unknown launch in [125, 150): of step 2's 60 it alone fills [130, 140).
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 100)
    hand.step(2, 100, 100)
    hand.work("a", 10, 120, launch=5, step=1)
    hand.work("b", 20, 40, launch=6, step=1, stream_id=8)
    hand.work("before", 125, 25, launch=None, stream_id=9)
    hand.work("c", 140, 50, launch=105, step=2)
    each = run(find("B03"), StepView.of(hand.build(), "each")).table
    assert each.select("step", "window_ns", "busy_ns", "earlier_ns").rows() == [(1, 130, 120, 0), (2, 60, 60, 10)]


def test_a_device_that_stood_behind_work_of_before_the_trace_is_seen_from_its_first_recorded_work_on() -> None:
    # Launched at 0, begun at 5 ms: something that the trace does not hold ran until then. Its window is [5, 10) ms.
    hand = Hand()
    hand.run(0)
    hand.work("a", 5_000_000, 5_000_000, launch=0)
    row = run(find("B03"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["window_ns"], row["busy_ns"], row["idle_share"]) == (5_000_000, 5_000_000, 0.0)


def test_a_copy_that_holds_its_caller_is_waiting_and_no_launch() -> None:
    # cudaMemcpy begins at 20, its copy at 50: the device is idle in [10, 50), 10 before the call and 30 in it.
    hand = Hand()
    hand.run(0)
    hand.work("a", 0, 10, launch=0, thread_id=1)
    call = hand.span("runtime", "call", "cudaMemcpy", 20, 40, thread_id=1)
    hand.span(
        "kernel", "memcpy", "Memcpy HtoD", 50, 10, device_id=0, stream_id=7, attribution="model_only", parent_id=call
    )
    causes = run(find("B16"), StepView.of(hand.build())).table.select("cause", "call", "idle_ns").rows()
    assert causes == [("sync", "cudaMemcpy", 30), ("host", None, 10)]


def test_the_hosts_own_work_is_named_after_the_innermost_span_that_holds_half_of_it() -> None:
    # Between works at [0, 10) and from 1,000 us on, launched at 990 us by thread 1. Until then it is in `epoch`,
    # therein for 700 us in `preprocess`, therein for 300 in an operator; another thread is in `other` throughout.
    hand = Hand()
    hand.run(0)
    hand.work("a", 0, 10, launch=0, thread_id=1)
    epoch = hand.span("application", "range", "epoch", 20, 999_000, thread_id=1)
    prepare = hand.span("application", "range", "preprocess", 200_000, 700_000, thread_id=1, parent_id=epoch)
    hand.span("operator", "operator", "aten::to", 300_000, 300_000, thread_id=1, parent_id=prepare)
    hand.span("application", "range", "other", 20, 999_000, thread_id=2)
    hand.work("b", 1_000_000, 10, launch=990_000, thread_id=1)
    rows = run(find("B16"), StepView.of(hand.build())).table.select("cause", "call", "idle_ns").rows()
    assert rows == [("host", "preprocess", 989_990), ("launch", None, 10_000)]


@pytest.mark.parametrize(
    ("call", "pending_ns", "expected"),
    [
        # It waits for 70 and takes 10 more; 70 of the 150 behind it are its, and all 150 where it waits longer.
        ("cudaStreamSynchronize", 70, {("sync", "cudaStreamSynchronize"): 80, ("host", None): 80}),
        ("hipMemcpyWithStream", 200, {("sync", "hipMemcpyWithStream"): 160}),
        # Nothing is pending: what it takes is the host's own time.
        ("cudaStreamSynchronize", 0, {("host", "cudaStreamSynchronize"): 10, ("host", None): 160}),
        ("cudaFree", 0, {("initialisation", "cudaFree"): 10, ("host", None): 160}),
        # A free that waited frees when the work has ended.
        ("cudaFree", 70, {("host", "cudaFree"): 10, ("host", None): 150}),
    ],
)
def test_a_call_waits_while_work_from_before_it_is_pending_and_holds_up_the_host_no_longer_than_that(
    call: str, pending_ns: int, expected: dict[tuple[str, str | None], int]
) -> None:
    # The call begins at 20 and ends 10 after the work that is pending; 150 later the next work is launched, and begins.
    end = 20 + pending_ns + 10
    hand = Hand()
    hand.run(0)
    hand.work("a", 0, 20 + pending_ns if pending_ns else 10, launch=0, thread_id=1)
    hand.span("runtime", "call", call, 20, end - 20, thread_id=1)
    hand.work("b", end + 150, 10, launch=end + 150, thread_id=1)
    rows = run(find("B16"), StepView.of(hand.build())).table.select("cause", "call", "idle_ns").rows()
    assert {(cause, name): idle for cause, name, idle in rows} == expected


def test_a_launch_call_of_milliseconds_beside_an_idle_device_loads_code() -> None:
    # cudaLaunchKernel from 1 to 6 ms (of which the device is idle throughout), its kernel at 6.01 ms; another stands
    # before it, so that the process had launched.
    hand = Hand()
    hand.run(0)
    hand.work("a", 10_000, 10_000, launch=0, thread_id=1)
    call = hand.span("runtime", "call", "cudaLaunchKernel", 1_000_000, 5_000_000, thread_id=1)
    hand.span("kernel", "kernel", "b", 6_010_000, 10_000, device_id=0, stream_id=7, attribution="model_only", parent_id=call)  # fmt: skip # noqa: E501
    rows = run(find("B16"), StepView.of(hand.build())).table.select("cause", "call", "idle_ns").rows()
    assert rows == [
        ("initialisation", "cudaLaunchKernel", 5_000_000),
        ("host", None, 980_000),
        ("initialisation", None, 10_000),
        ("launch", None, 10_000),
    ]


def test_work_that_begins_long_behind_its_call_waited_for_what_is_not_known() -> None:
    # Launched at 20 us by a call of 5 us, it begins at 3 ms beside an idle device.
    hand = Hand()
    hand.run(0)
    hand.work("a", 0, 20_000, launch=0, thread_id=1)
    call = hand.span("runtime", "call", "hipLaunchKernel", 20_000, 5_000, thread_id=1)
    at = {"device_id": 0, "stream_id": 7, "attribution": "model_only", "parent_id": call}
    hand.span("kernel", "kernel", "b", 3_000_000, 10_000, **at)
    rows = run(find("B16"), StepView.of(hand.build())).table.select("cause", "idle_ns").rows()
    assert rows == [("unknown", 2_980_000)]


def test_a_question_about_a_kernel_takes_long_where_it_loads_the_kernel() -> None:
    # Between pieces of work the host asks for 300 us, the first of its name, then for 2 us five times, then for 500 us.
    hand = Hand()
    hand.run(0)
    begin = 0
    for length in (300_000, 2_000, 2_000, 2_000, 2_000, 2_000, 500_000):
        hand.work("a", begin, 1_000, launch=begin, thread_id=1)
        hand.span("runtime", "call", "cudaFuncGetAttributes", begin + 1_000, length, thread_id=1)
        begin += 1_000 + length
    hand.work("a", begin, 1_000, launch=begin, thread_id=1)
    rows = run(find("B16"), StepView.of(hand.build())).table.select("cause", "call", "idle_ns").rows()
    assert rows == [("initialisation", "cudaFuncGetAttributes", 800_000), ("host", None, 10_000)]
