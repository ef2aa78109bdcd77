"""What bounds a run, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from tests.helpers.synth import KinetoTrace
from xsp_analyze.findings import Bound, advise, verdict
from xsp_analyze.findings.facts import Facts
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_analyze.findings import Verdict

_STEP = 1_000_000


def _verdict_of(*work: tuple[str, str, int, int], loader_ns: int = 0, ledger: str = "") -> Verdict:
    """Three steps of 1 ms, each with this device work (name, kind, start in the step, duration)."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number in range(3):
        begin = number * _STEP
        step = hand.step(number, begin, _STEP)
        hand.module("Net_0", begin + 10, 1_000, 0)
        if loader_ns:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            hand.span("operator", "operator", name, begin + 2_000, loader_ns, parent_id=step, step=number, thread_id=1)
        for name, kind, start, duration in work:
            launch = begin + start - 500
            hand.work(name, begin + start, duration, kind=kind, launch=launch, parent=step, step=number, thread_id=1)
    if ledger:
        row = {"run_id": None, "kind": ledger, "severity": "error", "count": 1, "duration_ns": 100, "detail": "x"}
        hand.extra["ledger"] = [{**row, "advice": ""}]
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    return one


_GEMM, _REDUCE = ("sgemm", "kernel", 5_000), ("ncclDevKernel_AllReduce_Sum_f32", "kernel", 500_000)
_COPY = ("Memcpy HtoD (Pageable -> Device)", "memcpy", 300_000)


@pytest.mark.parametrize(
    ("work", "loader_ns", "bound", "parts"),
    [
        ([(*_GEMM, 800_000)], 0, Bound.DEVICE, "computes for 80.0 % and waits for 20.0 %"),
        ([(*_GEMM, 300_000), (*_REDUCE, 400_000)], 0, Bound.COMMUNICATION, "communicates alone for 40.0 %"),
        ([(*_GEMM, 200_000), (*_COPY, 600_000)], 0, Bound.COPIES, "copies alone for 60.0 %"),
        ([(*_GEMM, 200_000)], 0, Bound.HOST, "waits for 80.0 % (host work 80.0 %"),
        ([("sgemm", "kernel", 700_000, 200_000)], 690_000, Bound.INPUT, "(input 69.0 %"),
    ],
)
def test_the_largest_part_bounds_the_run(
    work: list[tuple[str, str, int, int]], loader_ns: int, bound: Bound, parts: str
) -> None:
    one = _verdict_of(*work, loader_ns=loader_ns)
    assert one.bound is bound
    assert one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ").startswith(f"{bound}: of 1.00 ms a step the device ")
    assert parts in one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_the_verdict_names_what_promises_most() -> None:
    """Half of the time is idle, so that without it the run is twice as fast."""
    one = _verdict_of((*_GEMM, 500_000))
    assert "The device waits for the host, up to 2.0 times as fast: " in one.sentence


@pytest.mark.parametrize(
    ("ledger", "why"),
    [
        ("stream_overlap", "its times cannot be"),
        ("no_timestamps", "sums, without times of start"),
        ("averaged_times", "sums, without times of start"),
    ],
)
def test_what_cannot_be_told_is_not(ledger: str, why: str) -> None:
    one = _verdict_of((*_GEMM, 800_000), ledger=ledger)
    assert one.bound is Bound.UNKNOWN
    assert why in one.sentence


def test_a_trace_of_the_host_alone_says_so() -> None:
    one = _verdict_of()
    assert one.bound is Bound.HOST_ONLY


def test_threads_side_by_side_take_no_more_than_all_their_time() -> None:
    hand = Hand()
    hand.run(0, layer_source="module")
    step = hand.step(0, 0, _STEP)
    for thread in (1, 2):
        hand.module("Net_0", 100, 600_000, 0, thread_id=thread, parent_id=step, step=0)
    frames = StepView.of(hand.build())
    one = verdict(frames, [])
    assert one is not None
    assert one.sentence.replace("\u202f", " ").endswith(
        "Of 1.00 ms a step on the host, 1.20 ms in sum over threads: forward 100 %."
    )


def test_what_the_profiler_did_of_its_own_bounds_no_run() -> None:
    """Of each step of 1 ms the device is busy for 300 us; the profiler fetches buffers for 600 of the rest."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number in range(3):
        begin = number * _STEP
        step = hand.step(number, begin, _STEP)
        hand.span("library", "call", "Activity Buffer Request", begin + 310_000, 600_000, thread_id=1, step=number)
        hand.work("sgemm", begin + 1_000, 300_000, launch=begin + 500, parent=step, step=number, thread_id=1)
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    assert one.bound is Bound.UNKNOWN
    assert "(profiler 60.0 %" in one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_start_up_stands_apart() -> None:
    """A context is made until 9,000 us; then the device is busy for 1,600 of 2,000 us."""
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaFree", 0, 8_999_000, thread_id=1)
    hand.work("sgemm", 9_000_000, 800_000, launch=8_999_500, thread_id=1)
    hand.work("sgemm", 10_200_000, 800_000, launch=10_199_500, thread_id=1)
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    assert one.bound is Bound.DEVICE
    sentence = one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "of 2.00 ms without start-up the device computes for 80.0 % and waits for 20.0 %" in sentence
    assert "Start-up and end take 9.00 ms more, once a process." in sentence


def test_what_is_before_the_first_of_marked_steps_is_start_up_too() -> None:
    """A context is made for 4 ms before three steps of 1 ms that the device fills: told, and in no share."""
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaFree", 0, 4 * _STEP, thread_id=1)
    for number in range(3):
        begin = (4 + number) * _STEP
        step = hand.step(number, begin, _STEP)
        hand.work("sgemm", begin + 1_000, 998_000, launch=begin + 500, parent=step, step=number, thread_id=1)
    fired = {one.rule.id: one for one in advise(StepView.of(hand.build()))}
    sentence = fired["start-up"].observation.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert sentence == "4.00 ms of 7.00 ms are start-up, once a process, and in no finding."
    assert "gpu-idle" not in fired


@pytest.mark.parametrize(("kernels", "bound"), [(3, Bound.TOO_LITTLE), (60, Bound.DEVICE)])
def test_a_few_kernels_without_steps_are_too_little_to_judge(kernels: int, bound: Bound) -> None:
    hand = Hand()
    hand.run(0)
    for number in range(kernels):
        hand.work(f"k{number}", number * 1_100, 1_000, launch=number * 1_100 - 50, thread_id=1)
    hand.work("copy", kernels * 1_100, 1_000, launch=kernels * 1_100 - 50, kind="memcpy", thread_id=1)
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    assert one.bound is bound
    little = "no step repeats, and the device is busy for 4.00 µs of 4.30 µs, with 3 kernels and 1 copy or fill."
    sentence = one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert (sentence == f"{bound}: {little}") is (bound is Bound.TOO_LITTLE)


def test_of_next_to_nothing_no_idle_time_is_to_be_gained() -> None:
    """A kernel of 100 us, 10 ms of the host's, and another kernel."""
    hand = Hand()
    hand.run(0)
    hand.work("a", 1_000, 100_000, launch=500, thread_id=1)
    hand.work("b", 10_100_000, 100_000, launch=10_099_000, thread_id=1)
    assert "gpu-idle" not in {one.rule.id for one in advise(StepView.of(hand.build()))}


def test_where_a_gain_is_unknown_the_verdict_names_what_takes_most() -> None:
    one = _verdict_of(*((f"void tiled<{tile}>(int)", "kernel", 5_000 + tile * 200_000, 190_000) for tile in range(5)))
    sentence = one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert " 5 variants of tiled take 100 % of device time; they" not in sentence
    assert " 5 variants of tiled take 100 % of device time: See " in sentence


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("cudaHostAlloc", "Reserve memory once and use it again"),
        ("cudaFuncSetAttribute", "See why the host spends so long in cudaFuncSetAttribute. "),
    ],
)
def test_idle_time_is_advised_on_by_the_call_that_explains_most_of_it(call: str, advice: str) -> None:
    """Of each 1 ms the device works for 200 us; the host is in that call for 700."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number in range(3):
        begin = number * _STEP
        step = hand.step(number, begin, _STEP)
        hand.span("runtime", "call", call, begin + 1_000, 700_000, parent_id=step, step=number, thread_id=1)
        hand.work("a", begin + 750_000, 200_000, launch=begin + 740_000, parent=step, step=number, thread_id=1)
    one = next(one for one in advise(StepView.of(hand.build())) if one.rule.id == "gpu-idle")
    assert one.do.startswith(advice)


def test_work_outside_of_steps_is_told_with_its_range() -> None:
    """Three steps of 800 us of work, and 400 us in a range after them, within another that is no more than a part."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number in range(3):
        begin = number * _STEP
        step = hand.step(number, begin, _STEP)
        hand.work("sgemm", begin + 1_000, 800_000, launch=begin + 500, parent=step, step=number, thread_id=1)
    outer = hand.span("application", "range", "validate", 3 * _STEP, _STEP, thread_id=1)
    inner = hand.span("application", "range", "batch", 3 * _STEP + 10, 900_000, thread_id=1, parent_id=outer)
    hand.work("sgemm", 3 * _STEP + 1_000, 400_000, launch=3 * _STEP + 500, parent=inner, thread_id=1)
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    clause = " 14.3 % of the device work lies outside of steps, most in validate."
    assert clause in one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_advice_on_the_smaller_part_of_time_says_so() -> None:
    """The device computes for 70 %, the rest waits for input: that can be had; what it computes is of no rule."""
    work = [(f"k{number % 7}", "kernel", 300_000 + number * 100_000, 100_000) for number in range(7)]
    one = _verdict_of(*work, loader_ns=290_000)
    assert one.bound is Bound.DEVICE
    assert " Most may be gained where it waits, though. The device waits for input, up to" in one.sentence


def test_what_the_host_takes_bounds_the_run_where_a_device_twice_as_fast_would_save_less() -> None:
    """The device computes for 55 % and waits for 44 for input: half of its time is less than that."""
    work = [(f"k{number % 5}", "kernel", 450_000 + number * 100_000, 110_000) for number in range(5)]
    one = _verdict_of(*work, loader_ns=440_000)
    assert one.bound is Bound.INPUT
    assert " The device waits for input, up to 1.8 times as fast: " in one.sentence


def test_findings_that_divide_the_idle_time_promise_it_together() -> None:
    """Of each 1 ms the device works for 200 us: half of the rest is in gaps of 5 us between kernels."""
    small = [(f"k{number % 9}", "kernel", 5_000 + number * 7_000, 2_000) for number in range(60)]
    one = _verdict_of(*small, (*_GEMM[:2], 900_000, 80_000))
    sentence = one.sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert one.bound is Bound.HOST
    assert " up to 5.0 times as fast, with launch-bound together: " in sentence


def test_where_the_host_bounds_the_run_faster_kernels_come_last() -> None:
    """The device communicates alone for 10 %, and is in one kernel for 20 %, which would be told before it."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number in range(3):
        begin = number * _STEP
        step = hand.step(number, begin, _STEP)
        for name, start, length in (("sgemm", 200_000, 200_000), (_REDUCE[0], 500_000, 100_000)):
            launch = begin + start - 500
            hand.work(name, begin + start, length, launch=launch, parent=step, step=number, thread_id=1)
    advice = [one.rule.id for one in advise(StepView.of(hand.build())) if not one.rule.on_trust]
    assert advice == ["gpu-idle", "exposed-communication", "dominant-kernel"]


def _cold_run(*, names: Sequence[str]) -> Verdict:
    """Work of 4 ms, a convolution that tries these kernels of 5 ms each for 30 ms, and work of 4 ms of 5."""
    hand = Hand()
    hand.run(0, framework="pytorch")
    hand.work("sgemm", 0, 4_000_000, launch=-500, thread_id=1)
    search = hand.span("operator", "operator", "aten::cudnn_convolution", 4_000_000, 30_000_000, thread_id=1)
    for number, name in enumerate(names):
        at = 5_000_000 + number * 7_000_000
        hand.work(name, at, 5_000_000, launch=at - 500, parent=search, thread_id=1)
        wait = {"parent_id": search, "thread_id": 1}
        hand.span("runtime", "call", "cudaEventSynchronize", at + 1_000, 5_000_000, **wait)
    hand.work("sgemm", 35_000_000, 4_000_000, launch=34_999_500, thread_id=1)
    frames = StepView.of(hand.build())
    one = verdict(frames, advise(frames))
    assert one is not None
    return one


def test_a_search_for_the_fastest_kernel_is_start_up() -> None:
    names = [f"{kind}_convolve_sgemm" for kind in ("implicit", "explicit", "cudnn", "winograd")]
    sentence = _cold_run(names=names).sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "without start-up the device computes for 88.9 % and waits for 11.1 %" in sentence
    assert "Start-up and end take 30.0 ms more, once a process." in sentence
    timed_by_the_program = _cold_run(names=names[:1] * 4).sentence.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "of 39.0 ms without start-up the device computes for 71.8 %" in timed_by_the_program


def test_memory_that_is_reserved_first_is_start_up_and_in_a_loop_it_is_not() -> None:
    """Rounds of 400 us of allocation and 500 us of work, then a free: what is reserved later takes its place."""
    hand = Hand()
    hand.run(0)
    hand.work("sgemm", 0, 500_000, launch=-500, thread_id=1)
    for begin in range(1_000_000, 4_000_000, 1_000_000):
        hand.span("runtime", "call", "cudaMalloc", begin - 450_000, 400_000, thread_id=1)
        hand.work("sgemm", begin, 500_000, launch=begin - 500, thread_id=1)
        hand.span("runtime", "call", "cudaFree", begin + 505_000, 1_000, thread_id=1)
    frames = StepView.of(hand.build())
    start_up, other = Facts(frames).devices.select("start_up_ns", "idle_host_ns").row(0)
    assert start_up == pytest.approx(400_000, abs=10_000)
    assert other == pytest.approx(1_100_000, abs=10_000)


def test_a_trace_in_which_nothing_ran_has_no_verdict() -> None:
    hand = Hand()
    hand.run(0)
    frames = StepView.of(hand.build())
    assert verdict(frames, advise(frames)) is None


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "steps", "bound"),
    [
        ("kineto/resnet_train.rtx2080ti.json.gz", "all", Bound.INPUT),
        ("kineto/bert_small.h100.json.gz", None, Bound.HOST),
        ("kineto/switch_moe_cold.a100.json.gz", None, Bound.DEVICE),
        ("kineto/cpu_only.json.gz", None, Bound.HOST_ONLY),
    ],
)
def test_real_traces(real_dir: Path, name: str, steps: str | None, bound: Bound) -> None:
    """What scripts that share nothing with us found in the same files."""
    frames = StepView.of(convert([real_dir / name], Options()), steps)
    one = verdict(frames, advise(frames))
    assert one is not None
    assert one.bound is bound


@pytest.mark.parametrize(("weights", "fires"), [(8, False), (7, True)])
def test_what_is_copied_once_before_the_first_kernel_sets_up(weights: int, fires: bool) -> None:  # noqa: FBT001
    """Weights of 500 us each, then four rounds of an input of 100 us and a kernel: a few copies may be inputs too."""
    hand = Hand()
    hand.run(0)
    begin, sizes = 0, []
    for number in range(weights + 4):
        is_input = number >= weights
        length = 100_000 if is_input else 500_000
        span = hand.work("Memcpy HtoD", begin, length, kind="memcpy", launch=begin, thread_id=1)
        sizes.append({"span_id": span, "bytes": 4096 if is_input else 10_000 + number, "source_kind": "Pageable"})
        begin += length
        if is_input:
            hand.work("sgemm", begin, 800_000, launch=begin, thread_id=1)
            begin += 800_000
    hand.extra["copies"] = sizes
    facts = Facts(StepView.of(hand.build()))
    assert facts.set_up.height == (0 if fires else weights)
    ids = {one.rule.id for one in advise(facts.frames)}
    assert ("pageable-copies" in ids, "dominant-kernel" in ids) == (True, True)
    copies = sum(
        one.gain_ns or 0 for one in advise(facts.frames) if one.rule.id in {"pageable-copies", "copies-in-step"}
    )
    assert copies == pytest.approx(3_900_000 if fires else 400_000)


def test_steps_that_are_repetitions_say_so(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for number in range(12):
        kineto.operator("aten::mm" if number % 2 else "aten::relu", number * 10_000, 9_000)
    frames = StepView.of(convert([kineto.write(tmp_path / "loop.json")], Options()))
    one = verdict(frames, advise(frames))
    assert one is not None
    clause = " No step is marked: each is one of 6 repetitions of the same 2 operators, in the same order."
    assert one.sentence.endswith(clause)
