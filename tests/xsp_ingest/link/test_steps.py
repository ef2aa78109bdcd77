"""What marks an iteration where no step does: an optimizer's steps, and ranges around an engine's. Times in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import KinetoTrace
from tests.helpers.synth_nsys import NsightFile
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_STEP = "Optimizer.step#SGD.step"
_ENGINE = "ExecutionContext::enqueueV3"


def training(*, first: str | None = "enumerate(DataLoader)#Iter.__next__") -> KinetoTrace:
    """Three iterations of 100,000 ns after 50,000 of start-up: input, a kernel of the pass, one of the optimizer's."""
    kineto = KinetoTrace()
    kineto.launch("start_up", 10_000, 15_000, 1_000)
    for number in range(3):
        start = 50_000 + number * 100_000
        if number or first:
            kineto.annotation(first or "Optimizer.zero_grad#SGD.zero_grad", start + 1_000, 5_000)
        kineto.operator("aten::mm", start + 10_000, 10_000)
        kineto.launch("gemm", start + 11_000, start + 15_000, 4_000)
        kineto.annotation(_STEP, start + 80_000, 20_000)
        kineto.launch("sgd", start + 81_000, start + 85_000, 4_000)
    return kineto


def steps_of(trace: Trace) -> list[tuple[str, int, int]]:
    spans = trace.frame("spans").filter(pl.col("kind") == "step", pl.col("level") == "model").sort("start_ns")
    first = trace.frame("runs")["clock_origin_ns"][0]
    return [
        (name, start + first, start + first + duration)
        for name, start, duration in spans.select(pl.col("name").cast(pl.String), "start_ns", "duration_ns").iter_rows()
    ]


def kernel_steps(trace: Trace) -> list[int | None]:
    return trace.frame("spans").filter(pl.col("kind") == "kernel").sort("start_ns")["step"].to_list()


def test_an_iteration_ends_with_its_optimizers_step_and_the_first_begins_as_the_others_do(tmp_path: Path) -> None:
    trace = converted(training(), tmp_path)
    assert [end - start for _, start, end in steps_of(trace)] == [99_000, 100_000, 100_000]
    assert kernel_steps(trace) == [None, 0, 0, 1, 1, 2, 2]
    assert ledger_counts(trace)["steps_inferred"] == 3


def test_an_iteration_whose_begin_the_trace_lacks_is_none(tmp_path: Path) -> None:
    trace = converted(training(first=None), tmp_path)
    assert kernel_steps(trace) == [None, None, None, 0, 0, 1, 1]


def test_columns_of_large_traces_take_iterations_too(tmp_path: Path) -> None:
    with override_limits(mapped_column_min_bytes=1, spilled_min_spans=1):
        trace = converted(training(), tmp_path)
    assert kernel_steps(trace) == [None, 0, 0, 1, 1, 2, 2]


def test_the_profilers_steps_go_before_the_optimizers(tmp_path: Path) -> None:
    kineto = training()
    kineto.step(7, 50_500, 99_500)
    trace = converted(kineto, tmp_path)
    assert [name for name, _, _ in steps_of(trace)] == ["ProfilerStep#7"]
    assert "steps_inferred" not in ledger_counts(trace)


def test_of_several_optimizers_the_last_one_ends_the_iteration(tmp_path: Path) -> None:
    kineto = training()
    for number in range(3):
        kineto.annotation("Optimizer.step#AdamW.step", 110_000 + number * 100_000, 10_000)
    assert kernel_steps(converted(kineto, tmp_path)) == [None, 0, 0, 1, 1, 2, 2]


def test_an_optimizer_that_steps_within_the_backward_pass_ends_no_iteration(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for number in range(4):
        kineto.operator("autograd::engine::evaluate_function: AddmmBackward0", number * 1_000, 900)
        kineto.annotation(_STEP, number * 1_000 + 500, 300)
    assert steps_of(converted(kineto, tmp_path)) == []


@pytest.mark.parametrize("name", ["iteration 3", "train_step", "[pl][profile]run_training_batch"])
def test_what_frameworks_call_an_iteration_is_a_step_in_torch_traces_too(name: str, tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation(name, 0, 1_000)
    kineto.launch("gemm", 100, 200, 400)
    assert [step for step, _, _ in steps_of(converted(kineto, tmp_path))] == [name]


def engine_trace(folder: Path, *ranges: str) -> Trace:
    """Frames of 1,000 ns, each with a range of this name around pre-processing, two engines' calls and their work."""
    file = NsightFile()
    file.range(0, 10_000, "main")
    for number, name in enumerate(ranges):
        start = 100 + number * 1_000
        if name:
            file.range(start, start + 900, name)
        file.launch((start + 10, start + 20), (start + 30, start + 60), "resize")
        for at in (100, 400):
            file.range(start + at, start + at + 100, _ENGINE, domain=3)
            file.launch((start + at + 10, start + at + 20), (start + at + 50, start + at + 80), "engine")
    return convert([file.write(folder / "trace.sqlite")], Options())


def test_ranges_that_repeat_around_an_engines_calls_are_the_steps(tmp_path: Path) -> None:
    trace = engine_trace(tmp_path, "", "frame", "frame", "frame")
    assert [name for name, _, _ in steps_of(trace)] == ["frame"] * 3
    assert kernel_steps(trace) == [None] * 3 + [0] * 3 + [1] * 3 + [2] * 3


def test_without_such_ranges_the_engines_calls_are(tmp_path: Path) -> None:
    trace = engine_trace(tmp_path, "", "", "")
    assert [name for name, _, _ in steps_of(trace)] == [_ENGINE] * 6


# Where nothing marks a step: what a program repeats to its end.


def looping(*names: str, rounds: int = 6, head: int = 1, tail: tuple[str, ...] = ()) -> KinetoTrace:
    """Operators of these names 10,000 ns apart again and again, behind some of setting up and before some others."""
    kineto = KinetoTrace()
    for number, name in enumerate([*["aten::empty"] * head, *list(names) * rounds, *tail]):
        kineto.operator(name, number * 10_000, 8_000)
        kineto.operator("aten::inner", number * 10_000 + 1_000, 1_000)
        kineto.launch(f"kernel of {name}", number * 10_000 + 2_000, number * 10_000 + 4_000, 3_000)
    return kineto


def test_what_a_program_repeats_to_its_end_is_a_step(tmp_path: Path) -> None:
    trace = converted(looping("aten::conv2d", "aten::relu", "aten::linear"), tmp_path)
    assert [(start, end) for _, start, end in steps_of(trace)] == [
        (10_000, 38_000),
        (38_000, 68_000),
        (68_000, 98_000),
        (98_000, 128_000),
        (128_000, 158_000),
        (158_000, 188_000),
    ]
    assert kernel_steps(trace) == [None, *(number for number in range(6) for _ in range(3))]
    inferred = trace.frame("ledger").filter(pl.col("kind").cast(pl.String) == "steps_inferred")
    assert inferred["count"].to_list() == [6]
    assert "each is one repetition of the same 3 operators" in str(inferred["detail"][0])


def test_a_synchronisation_behind_the_calls_of_a_repetition_is_of_it(tmp_path: Path) -> None:
    kineto = looping("aten::conv2d", "aten::relu")
    for number in range(6):
        kineto.runtime("cudaDeviceSynchronize", 10_000 + number * 20_000 + 18_500, 1_000)
    ends = [end for _, _, end in steps_of(converted(kineto, tmp_path))]
    assert ends == [29_500, 49_500, 69_500, 89_500, 109_500, 129_500]


def test_alike_layers_before_a_last_one_are_no_steps(tmp_path: Path) -> None:
    kineto = looping("aten::linear", "aten::relu", rounds=20, tail=("aten::softmax",))
    assert steps_of(converted(kineto, tmp_path)) == []


def test_five_rounds_or_rounds_of_unlike_length_are_no_steps(tmp_path: Path) -> None:
    assert steps_of(converted(looping("aten::conv2d", "aten::relu", rounds=5, head=0), tmp_path)) == []
    kineto = KinetoTrace()
    start = 0
    for length in (10_000, 200_000, 10_000, 90_000, 30_000, 400_000, 20_000):
        for name in ("aten::conv2d", "aten::relu"):
            kineto.operator(name, start, length)
            start += length
    assert steps_of(converted(kineto, tmp_path)) == []


def test_marked_steps_go_before_repetitions(tmp_path: Path) -> None:
    kineto = looping("aten::conv2d", "aten::relu")
    kineto.step(7, 9_000, 82_000)
    assert [name for name, _, _ in steps_of(converted(kineto, tmp_path))] == ["ProfilerStep#7"]


def test_launches_of_a_program_without_operators_repeat_too(tmp_path: Path) -> None:
    nsight = NsightFile()
    for number in range(1, 19):
        begin = number * 10_000
        nsight.launch((begin, begin + 2_000), (begin + 3_000, begin + 8_000), "flux" if number % 3 else "step")
    trace = convert([nsight.write(tmp_path / "run.sqlite")], Options())
    assert kernel_steps(trace) == [number for number in range(6) for _ in range(3)]


def test_work_that_nothing_launched_has_the_step_it_ran_in(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for number in range(12):
        kineto.kernel("flux" if number % 2 else "step", number * 10_000, 6_000, correlation=None)
    assert kernel_steps(converted(kineto, tmp_path)) == [number for number in range(6) for _ in range(2)]


def test_up_to_torch_1_9_an_optimizers_step_stands_among_the_operators(tmp_path: Path) -> None:
    kineto = training()
    for event in kineto.events:
        if event["cat"] == "user_annotation":
            event["cat"] = "Operator"
    trace = converted(kineto, tmp_path)
    assert [end - start for _, start, end in steps_of(trace)] == [99_000, 100_000, 100_000]


def test_ranges_repeat_where_there_is_nothing_else(tmp_path: Path) -> None:
    nsight = NsightFile()
    for number in range(18):
        nsight.range(number * 10_000 + 1, number * 10_000 + 8_000, ("read", "detect", "track")[number % 3])
    assert len(steps_of(convert([nsight.write(tmp_path / "run.sqlite")], Options()))) == 6
