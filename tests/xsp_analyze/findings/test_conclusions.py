"""What is concluded of traces on which a first look went wrong, each kind by a made trace, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.hand import Hand
from tests.helpers.launched import Launched
from xsp_analyze.catalog import table
from xsp_analyze.findings import Bound, advise, verdict
from xsp_analyze.findings.facts import Facts
from xsp_analyze.findings.recording import recordings
from xsp_analyze.text.doubts import lost_work
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.findings import Advice, Verdict

_MS = 1_000_000


def _advice_of(hand: Hand) -> Mapping[str, Advice]:
    return {one.rule.id: one for one in advise(StepView.of(hand.build()))}


def _verdict_of(hand: Hand) -> Verdict:
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    return one


def _plain(text: str) -> str:
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ")


def _working(*work: tuple[str, int], **columns: Any) -> Hand:  # noqa: ANN401
    """Work of one stream, one after the other, each launched when the one before it begins: name and duration."""
    hand = Hand()
    hand.run(0)
    start = launch = 10_000
    for name, duration in work:
        hand.work(name, start, duration, launch=launch - 5_000, thread_id=1, **columns)
        start, launch = start + duration, start
    return hand


def test_products_in_fp32_are_held_against_what_computes_not_against_communication() -> None:
    """Of 100 ms 92 are collectives: 5 of the other 8 are products, 5 % of all and 62.5 % of what computes."""
    launched = Launched()
    launched.kernel("volta_sgemm_128x64_nn", 5 * _MS, (640, 1, 1))
    launched.kernel("relu", 3 * _MS, (640, 1, 1))
    launched.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 92 * _MS, (640, 1, 1))
    sentence = _plain(_advice_of(launched)["fp32-products"].observation.sentence)
    assert sentence.startswith("Matrix products in FP32 take 5.00 % of device time, 62.5 % of what computes;")


@pytest.mark.parametrize(("kernels", "fires"), [(4, False), (60, True)])
def test_no_kernel_is_told_first_of_what_is_too_little_to_judge(kernels: int, *, fires: bool) -> None:
    hand = _working(*[("a", 10_000)] * kernels)
    assert (_verdict_of(hand).bound is Bound.TOO_LITTLE) is not fires
    assert ("dominant-kernel" in _advice_of(hand)) is fires


def _numbered(numbers: Sequence[int]) -> Hand:
    """Operators with these numbers, each of 10 us with a kernel."""
    hand = Hand()
    hand.run(0, format="torch_profiler")
    for at, number in enumerate(numbers):
        span = hand.span("operator", "operator", "aten::add", at * 20_000, 10_000, thread_id=1)
        hand.extra.setdefault("operators", []).append({"span_id": span, "external_id": number})
        hand.work("add", at * 20_000 + 8_000, 6_000, launch=at * 20_000 + 1_000, parent=span, thread_id=1)
    return hand


@pytest.mark.parametrize(
    ("numbers", "is_doubted"),
    [
        (range(1, 101), False),
        (range(1, 201, 2), False),  # by twos: every other one is of another kind
        ((*range(1, 51), *range(5_000, 5_050)), False),  # one pause of the profiler
        (range(1, 2_001, 20), True),
    ],
)
def test_operators_whose_numbers_have_many_gaps_are_what_is_left_of_a_file(
    numbers: Sequence[int], *, is_doubted: bool
) -> None:
    hand = _numbered(numbers)
    assert ("work-not-recorded" in _advice_of(hand)) is is_doubted
    assert (_verdict_of(hand).bound is Bound.UNKNOWN) is is_doubted


@pytest.mark.parametrize(("lost", "is_doubted"), [(range(40, 60), True), (range(80, 100), False), (range(5), False)])
def test_launches_without_kernels_are_doubted_but_at_the_end_of_the_file(lost: range, *, is_doubted: bool) -> None:
    """Of a hundred launches, twenty in the middle; at the end kernels run after the recording; five are few."""
    hand = Hand()
    hand.run(0)
    for number in range(100):
        at = number * 20_000
        if number in lost:
            hand.span("runtime", "call", "cudaLaunchKernel", at, 5, thread_id=1)
        else:
            hand.work("a", at + 5_000, 8_000, launch=at, thread_id=1)
    frames = StepView.of(hand.build())
    assert lost_work(frames.of_trace) == (
        ["Of 100 kernel launches 20 have no kernel in the file: pauses may be theirs."] if is_doubted else []
    )


def _system(*calls: tuple[str, int, int, int]) -> Hand:
    """Calls of the operating system: name, thread (of process 1), start, duration; both ends of 100 ms are there."""
    hand = Hand()
    hand.run(0, format="nsys_sqlite")
    for name, thread, start, duration in (("fopen", 1, 0, 10), *calls, ("fopen", 1, 100 * _MS - 10, 10)):
        hand.span("library", "call", name, start, duration, thread_id=thread)
    return hand


def test_of_calls_of_the_operating_system_those_of_the_main_thread_count_and_promise_nothing() -> None:
    """It reads for 30 of 100 ms and waits for a child for 20; fifty threads of a pool wait for 90 each."""
    pool = [("pthread_mutex_lock", 10 + n, 5 * _MS, 90 * _MS) for n in range(50)]
    reads = [("read", 1, (10 + 3 * n) * _MS, 3 * _MS) for n in range(10)]
    hand = _system(*pool, *reads, ("waitpid", 1, 50 * _MS, 20 * _MS), ("poll", 1, 80 * _MS, 2 * _MS))
    findings = [one for one in advise(StepView.of(hand.build())) if one.rule.id == "host-dominant"]
    assert [one.gain_ns for one in findings] == [None, None]
    reading, waiting = (_plain(one.observation.sentence) for one in findings)
    assert reading.startswith(
        "Reading files or from others: the main thread spends 30.0 ms in 10 calls of the operating"
    )
    assert waiting.startswith("Waiting for child processes: the main thread spends 20.0 ms in 1 call of the operating")


@pytest.mark.parametrize(("use", "fires"), [(0.0, True), (0.2, False)])
def test_counters_without_times_say_that_tensor_cores_are_idle(use: float, *, fires: bool) -> None:
    hand = Hand()
    hand.run(0)
    for name, number in (("volta_sgemm_128x64_nn", 8), ("fill_kernel", 46)):
        span = hand.work(name, 0, 0, attribution="orphan_no_correlation")
        hand.rows["spans"][span]["duration_ns"] = None
        hand.metric(span, "tensor_precision_fu_utilization", use if "sgemm" in name else 0.0)
        hand.metric(span, "invocations", number)
    advice = _advice_of(hand)
    assert ("fp32-products" in advice) is fires
    if fires:
        assert advice["fp32-products"].observation.sentence.startswith(
            "Tensor cores are idle in all 2 kernels counted, by their counters; 8 launches of 54 are matrix products"
        )


def _summary(product: str, copies: int) -> Hand:
    """Sums as a report prints them: 300 products for 60 ms, so many copies for 40; the host copies for 500."""
    hand = Hand()
    hand.run(0)
    rows = ((product, 60 * _MS, 300, "kernel"), ("[CUDA memcpy DtoH]", 40 * _MS, copies, "memcpy"))
    for name, time, calls, kind in rows:
        span = hand.work(
            name, 0 if kind == "kernel" else 60 * _MS, time, kind=kind, attribution="orphan_no_correlation"
        )
        hand.metric(span, "invocations", calls)
    hand.span("runtime", "call", "cudaMemcpyAsync", 0, 500 * _MS, thread_id=0)
    entry = {"run_id": None, "kind": "no_timestamps", "severity": "info", "count": 2, "detail": "sums", "advice": ""}
    hand.extra["ledger"] = [{**entry, "duration_ns": None}]
    return hand


@pytest.mark.parametrize(("copies", "is_small"), [(20_000, True), (100, False)])
def test_rows_of_a_printed_summary_are_as_many_calls_as_it_says(copies: int, *, is_small: bool) -> None:
    """20,000 copies of 2 us are many and short, 100 of 400 us are not; beside what they ran is not in the file."""
    advice = _advice_of(_summary("sgemm_128x64", copies))
    assert _plain(advice["dominant-kernel"].observation.sentence).endswith("it is called 300 times.")
    one = advice["copies-in-step"]
    each = "; 20 000 of [CUDA memcpy DtoH] take 2.00 µs each" if is_small else ""
    sentence = f"Copies and memsets take 40.0 ms in sum, 40.0 % of device time{each}."
    assert _plain(one.observation.sentence) == sentence
    assert ("Copy less often" in one.do) is is_small
    labels = {_plain(e.label): e.value for e in one.observation.evidence}
    number = "20 000" if is_small else "100"
    assert labels == {f"[CUDA memcpy DtoH] ({number} calls)": 40 * _MS, "host in cudaMemcpyAsync": 500 * _MS}
    rows = table(StepView.of(_summary("sgemm_128x64", copies).build()), "A10")
    assert rows is not None
    assert dict(rows.select("kernel_name", "count").iter_rows()) == {"sgemm_128x64": 300, "[CUDA memcpy DtoH]": copies}


@pytest.mark.parametrize(("name", "is_wide"), [("gemm_128x64_tn", True), ("maxwell_fp16_sgemm_fp16_64", False)])
def test_kernels_of_two_bytes_get_no_advice_of_a_narrower_type(name: str, *, is_wide: bool) -> None:
    hand = _summary(name, 100)
    hand.rows["runs"][0]["framework"] = "pytorch"
    assert ("a narrower type" in _advice_of(hand)["dominant-kernel"].do) is is_wide


def test_a_gain_of_a_few_percent_is_no_number_of_times() -> None:
    """A copy alone for 4.2 of 100 ms: 1.0 times as fast would say nothing."""
    hand = Hand()
    hand.run(0)
    for number in range(3):
        begin = number * 100 * _MS
        step = hand.step(number, begin, 100 * _MS)
        for kernel in range(5):
            at = begin + 1_000 + kernel * 19 * _MS
            hand.work(f"k{kernel}", at, 19 * _MS, launch=begin + 500 + kernel, parent=step, step=number, thread_id=1)
        hand.work(
            "[CUDA memcpy Host-to-Device]", begin + 95 * _MS + 1_000, 4_200_000, kind="memcpy", launch=begin + 600,
            parent=step, step=number, thread_id=1,
        )  # fmt: skip
    hand.extra["copies"] = [
        {"span_id": n, "bytes": 1, "source_kind": "Pageable", "destination_kind": "Device"}
        for n, row in enumerate(hand.rows["spans"])
        if row["kind"] == "memcpy"
    ]
    sentence = _plain(_verdict_of(hand).sentence)
    assert "Copies use pageable memory, at most 4.20 % of the time:" in sentence


def test_the_verdict_names_the_classes_that_take_most() -> None:
    hand = _working(*[("volta_sgemm_128x64_nn", 70_000), ("softmax_warp_forward", 26_000), ("relu", 4_000)] * 20)
    assert " Device time: matrix product 70.0 %, softmax 26.0 %." in _plain(_verdict_of(hand).sentence)


def test_copies_that_nothing_could_hide_are_not_to_run_beside_what_computes() -> None:
    hand = _working(("a", 2 * _MS))
    hand.work("[CUDA memcpy Device-to-Host]", 3 * _MS, 50 * _MS, kind="memcpy", launch=2 * _MS, thread_id=1)
    assert _advice_of(hand)["copies-in-step"].do.startswith("Nothing computes as long as that")


def test_one_pause_that_is_most_of_the_idle_time_is_named() -> None:
    """Kernels back to back for 2 ms, nothing for 7 ms, the same again."""
    hand = Hand()
    hand.run(0)
    for begin in (0, 9 * _MS):
        for number in range(20):
            hand.work("a", begin + number * 100_000, 99_000, launch=begin + number * 100_000 - 50, thread_id=1)
    sentence = _plain(_advice_of(hand)["gpu-idle"].observation.sentence)
    assert sentence.endswith("; one pause of 7.00 ms is 99.5 % of it.")


def test_a_first_run_without_launches_in_which_kernels_were_tried_bounds_nothing() -> None:
    """A convolution of 80 ms with twelve kernels of 1 ms, and 20 ms of other operators, as a TensorFlow timeline."""
    hand = Hand()
    hand.run(0, framework="tensorflow")
    step = hand.step(0, 0, 100 * _MS)
    columns: dict[str, Any] = {"step": 0, "device_id": 0, "stream_id": 7, "attribution": "model_only"}
    tried = hand.span("operator", "operator", "conv1/Conv2D", 0, 80 * _MS, parent_id=step, step=0, thread_id=1)
    for number in range(12):
        hand.span("kernel", "kernel", "Conv2D", (60 + number) * _MS, _MS, parent_id=tried, **columns)
    other = hand.span("operator", "operator", "Relu", 80 * _MS, 20 * _MS, parent_id=step, step=0, thread_id=1)
    hand.span("kernel", "kernel", "Relu", 90 * _MS, _MS, parent_id=other, **columns)
    one = _verdict_of(hand)
    assert one.bound is Bound.UNKNOWN
    assert "a first run is recorded: 1 product or convolution tried many kernels each, for 80.0 ms of" in _plain(
        one.sentence
    )
    assert not {"gpu-idle", "dominant-kernel"} & set(_advice_of(hand))


@pytest.mark.parametrize(("launches", "is_of_captures"), [(0, True), (2, True), (3, False)])
def test_what_records_the_making_of_graphs_is_no_run_of_them(launches: int, is_of_captures: bool) -> None:  # noqa: FBT001
    """Two graphs are captured for 20 ms each, in 100 ms with 20 ms of kernels; later they are launched."""
    hand = _working(*[("elementwise_kernel", _MS)] * 20)
    for number in range(2):
        for name, at in (("cudaStreamBeginCapture", 40 + 25 * number), ("cudaStreamEndCapture", 59 + 25 * number)):
            hand.span("runtime", "call", name, at * _MS, _MS, thread_id=1)
    for number in range(launches):
        hand.span("runtime", "call", "cudaGraphLaunch", (93 + number) * _MS, 10_000, thread_id=1)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 99 * _MS, _MS, thread_id=1)
    one = _verdict_of(hand)
    says = f"the making of graphs is recorded, and no run of them: 2 graphs were captured, for 40.0 ms, and {launches}"
    assert (says in _plain(one.sentence)) is is_of_captures
    assert (one.bound is Bound.UNKNOWN) is is_of_captures


def test_pauses_before_migrations_of_unified_memory_are_the_host_s() -> None:
    """Kernels for 1 ms, then the host works for 8 ms and touches a page, which comes back in 1 us; kernels again."""
    hand = Hand()
    hand.run(0)
    for number in range(10):
        hand.work("a", number * 100_000, 100_000, launch=number * 100_000 - 50_000, thread_id=1)
    hand.work("[CUDA memcpy Unified Device-to-Host]", 9 * _MS, 1_000, kind="memcpy", attribution="unified_memory")
    hand.work("a", 9 * _MS + 2_000, _MS, launch=9 * _MS + 1_500, thread_id=1)
    facts = Facts(StepView.of(hand.build()))
    assert facts.idle_of("idle_unknown_ns") == 0
    assert facts.idle_of("idle_host_ns") == pytest.approx(8 * _MS, rel=0.01)


def test_where_the_host_bounds_the_run_faster_kernels_come_behind_communication() -> None:
    """Of 10 ms the device waits for 5.4; a chain of elementwise kernels takes 3.6, a collective 1."""
    hand = Hand()
    hand.run(0)
    for number in range(4):
        begin = number * 10 * _MS
        step = hand.step(number, begin, 10 * _MS, thread_id=1)
        columns: dict[str, Any] = {"parent": step, "step": number, "thread_id": 1}
        for chain in range(6):
            at = begin + 5_400_000 + chain * 600_000
            hand.work(f"vectorized_elementwise_kernel<{chain % 2}>", at, 600_000, launch=at - 6_000, **columns)
        hand.work("ncclDevKernel_AllReduce_Sum_f32", begin + 9 * _MS, _MS, launch=begin + 9 * _MS - 6_000, **columns)
    ids = [one.rule.id for one in advise(StepView.of(hand.build()))]
    assert ids.index("exposed-communication") < ids.index("unfused-chains")


def test_an_engine_that_writes_the_form_of_another_beside_its_own_is_named_by_its_own() -> None:
    hand = Hand()
    hand.run(0, format="torch_profiler", layer_source="module")
    hand.work("gemm", 0, 100, launch=0)
    both = ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk64sqsq32sqsk64)", "step[DECODE bs=32]")
    for number, name in enumerate(both):
        hand.span("application", "range", name, number * 10, 10)
    states = [one.state for one in recordings(hand.build()) if one.topic == "serving"]
    assert states == ["steps named by SGLang: 2 decode"]


def test_a_step_that_first_waits_for_work_of_before_the_recording_begins_when_that_has_ended() -> None:
    """A little work on one stream at once; on the other, launched at the same time, nothing for 400 ms."""
    hand = Hand()
    hand.run(0)
    step = hand.step(0, 0, 410 * _MS, thread_id=1)
    columns: dict[str, Any] = {"parent": step, "step": 0, "thread_id": 1}
    hand.work("a", 100_000, 4_000, launch=90_000, stream_id=2, **columns)
    hand.work("b", 400 * _MS, 6_000, launch=120_000, stream_id=3, **columns)
    for number in range(10):
        at = 400 * _MS + 10_000 + number * 990_000
        hand.work("gemm", at, 980_000, launch=400 * _MS + 7_000 + number, stream_id=3, **columns)
    one = _verdict_of(hand)
    assert one.bound is Bound.DEVICE
    assert " Before that 400 ms were a wait for work of before the recording, and are in no share." in _plain(
        one.sentence
    )
    assert "gpu-idle" not in _advice_of(hand)


def test_a_marked_step_that_is_little_of_a_trace_makes_no_start_up_of_it() -> None:
    """Copies set a program up from 1 s on; from 10 s on it works for 20 ms, 2 of them in the one step marked."""
    hand = Hand()
    hand.run(0)
    hand.work("[CUDA memcpy Host-to-Device]", 1_000 * _MS, _MS, kind="memcpy", launch=999 * _MS, thread_id=1)
    for number in range(10):
        at = (10_000 + 2 * number) * _MS
        step = hand.step(0, at - 100_000, _MS, thread_id=1) if number == 4 else None
        columns: dict[str, Any] = {} if step is None else {"parent": step, "step": 0}
        hand.work("a", at, 2 * _MS, launch=at - 50_000, thread_id=1, **columns)
    hand.span("runtime", "call", "cudaDeviceReset", 20_000 * _MS, _MS, thread_id=1)
    facts = Facts(StepView.of(hand.build()))
    assert facts.idle_ns == pytest.approx(0, abs=_MS)
    assert facts.start_up_ns > 9_000 * _MS


@pytest.mark.parametrize(("other", "fires"), [("kernel", True), ("memcpy", False)])
def test_a_device_that_only_copies_has_no_part_in_unequal_work(other: str, *, fires: bool) -> None:
    """One device computes for 9 ms of a step of 10, the other works for 5."""
    hand = Hand()
    hand.run(0)
    for number in range(3):
        begin = number * 10 * _MS
        step = hand.step(number, begin, 10 * _MS, thread_id=1)
        columns: dict[str, Any] = {"parent": step, "step": number, "thread_id": 1}
        hand.work("a", begin + 100_000, 9 * _MS, launch=begin + 50_000, **columns)
        hand.work("b", begin + 200_000, 5 * _MS, launch=begin + 60_000, kind=other, device_id=1, **columns)
    assert ("uneven-devices" in _advice_of(hand)) is fires
