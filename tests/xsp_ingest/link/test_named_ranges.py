"""A named range, whatever its name and level, parts no module or operator from what it holds. Times in ns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts, named
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.link.range_rules import plain_name

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

ENGINE = 200  # the autograd engine's thread
_NAMES = (
    "DistributedDataParallel.forward",
    "Optimizer.step#SGD.step",
    "[pl][profile]training_step",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "PyTorch Profiler (0)",
    "ProfilerStep#7",
    "## forward ##",
    "nccl:all_reduce",
)
Range = tuple[str, int, int, int | None]  # name, start, duration, thread


def training(*ranges: Range) -> KinetoTrace:
    """One step of a module in a module, its backward on the engine's thread, and a module run again in backward.

    Net_0 holds Block_0, which holds Linear_0; Net_0's own kernel comes after, Linear_0's backward on the engine's
    thread, and there Block_1 again.
    """
    kineto = KinetoTrace()
    kineto.step(3, 0, 400_000)
    kineto.module("Net_0", 10_000, 90_000)
    kineto.module("Block_0", 20_000, 50_000)
    kineto.module("Linear_0", 30_000, 30_000)
    kineto.operator("aten::addmm", 31_000, 20_000, sequence_number=5)
    kineto.launch("gemm", 32_000, 500_000, 7_000)
    kineto.launch("bias", 62_000, 507_000, 11)  # Block_0's own
    kineto.operator("aten::add", 80_000, 10_000)
    kineto.launch("residual", 81_000, 508_000, 13)  # Net_0's own
    kineto.operator("AddmmBackward0", 150_000, 60_000, thread_id=ENGINE, sequence_number=5, forward_thread_id=1)
    kineto.operator("aten::mm", 160_000, 20_000, thread_id=ENGINE)
    kineto.launch("gemm_bw", 162_000, 520_000, 17_000, thread_id=ENGINE)
    kineto.module("Block_1", 185_000, 10_000, thread_id=ENGINE)
    kineto.launch("again", 186_000, 540_000, 19, thread_id=ENGINE)
    for name, start, duration, thread in ranges:
        kineto.annotation(name, start, duration, thread_id=thread)
    return kineto


LAYERS = [
    (0, "Linear_0", 2, 24_000),
    (1, "Block_0", 1, 11),
    (2, "Net_0", 1, 13),
    (3, "Block_1", 1, 19),
]
MODULES = [
    ("Net_0", "forward", 90_000, 40_000, 7_024, 13),
    ("Net_0", "backward", None, None, 17_000, 0),
    ("Net_0.Block_0", "forward", 50_000, 20_000, 7_011, 11),
    ("Net_0.Block_0", "backward", None, None, 17_000, 0),
    ("Net_0.Block_0.Linear_0", "forward", 30_000, 30_000, 7_000, 7_000),
    ("Net_0.Block_0.Linear_0", "backward", None, None, 17_000, 17_000),
    ("Block_1", "recompute", 10_000, 10_000, 19, 19),
]
BOUNDS: tuple[tuple[int, int, int | None], ...] = (
    (15_000, 80_000, None),  # around Block_0, in Net_0
    (20_000, 50_000, None),  # just as long as Block_0
    (20_000, 40_000, None),  # from Block_0's start on, around Linear_0
    (31_500, 19_000, None),  # within an operator
    (30_000, 1_000, None),  # from Linear_0's start on, around nothing
    (75_000, 20_000, None),  # around an operator of Net_0's own
    (155_000, 50_000, ENGINE),  # within a backward operator
    (150_000, 60_000, ENGINE),  # just as long as it
    (140_000, 90_000, ENGINE),  # around it
)


def layers(trace: Trace) -> list[tuple[object, ...]]:
    """A11 without host times."""
    columns = ("layer_index", "layer_name", "kernel_count", "kernel_duration_ns")
    return run(find("A11"), StepView.of(trace)).table.select(columns).rows()


def modules(trace: Trace) -> list[tuple[object, ...]]:
    """B06: path, phase, host and own host time, device time and own device time."""
    columns = ("module_path", "phase", "host_ns", "self_host_ns", "device_sum_ns", "self_device_sum_ns")
    return run(find("B06"), StepView.of(trace)).table.select(columns).rows()


def phases(trace: Trace) -> list[str]:
    """Those of the kernels, in order of start."""
    return trace.frame("spans").filter(pl.col("level") == "kernel").sort("start_ns")["phase"].to_list()


def test_the_trace_without_ranges_is_as_it_looks(tmp_path: Path) -> None:
    trace = converted(training(), tmp_path)
    assert layers(trace) == LAYERS
    assert modules(trace) == MODULES
    assert phases(trace) == ["forward", "forward", "forward", "backward", "recompute"]


@pytest.mark.parametrize("name", _NAMES)
def test_no_name_of_ranges_changes_what_modules_hold(name: str, tmp_path: Path) -> None:
    bounds = [p for p in BOUNDS if p[2] is None or not name.startswith("ProfilerStep")]  # which marks one thread
    trace = converted(training(*((name, *each) for each in bounds)), tmp_path)
    assert layers(trace) == LAYERS
    assert modules(trace) == MODULES
    if not name.startswith("Optimizer"):  # whose step is that phase wherever it is
        assert phases(trace) == ["forward", "forward", "forward", "backward", "recompute"]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_range_around_a_part_changes_nothing_of_modules(bounds: tuple[int, int, int | None], tmp_path: Path) -> None:
    trace = converted(training(("DistributedDataParallel.forward", *bounds)), tmp_path)
    assert layers(trace) == LAYERS
    assert modules(trace) == MODULES
    assert phases(trace) == ["forward", "forward", "forward", "backward", "recompute"]


@pytest.mark.parametrize("seed", range(12))
def test_ranges_anywhere_change_nothing_of_modules(seed: int, tmp_path: Path) -> None:
    """Also such as end in the midst of a module, which no program with one stack of calls can make."""
    choose = random.Random(seed)  # noqa: S311
    ranges = []
    for _ in range(6):
        thread = choose.choice((None, ENGINE))
        first, last = sorted(choose.sample(range(5_000, 240_000, 2_500), 2))
        names = [name for name in _NAMES if thread is None or not name.startswith("ProfilerStep")]
        ranges.append((choose.choice(names), first, last - first, thread))
    trace = converted(training(*ranges), tmp_path)
    assert layers(trace) == LAYERS
    assert modules(trace) == MODULES


def test_a_range_lies_in_the_operator_around_it_and_holds_what_begins_in_it(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("Net_0", 0, 100_000)
    kineto.operator("CompiledFunction", 10_000, 80_000)
    kineto.annotation("PyTorch Profiler (0)", 20_000, 60_000)
    kineto.module("Linear_0", 30_000, 20_000)
    kineto.operator("aten::mm", 60_000, 10_000)
    spans = named(converted(kineto, tmp_path))
    assert spans["PyTorch Profiler (0)"]["parent"] == "CompiledFunction"
    assert spans["Linear_0"]["parent"] == "PyTorch Profiler (0)"
    assert spans["aten::mm"]["parent"] == "PyTorch Profiler (0)"


def test_a_range_that_outlasts_what_it_began_in_holds_what_begins_behind_that(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("A_0", 0, 10_000)
    kineto.annotation("part", 5_000, 50_000)
    kineto.operator("aten::relu", 6_000, 1_000)
    kineto.module("B_0", 20_000, 10_000)
    trace = converted(kineto, tmp_path)
    spans = named(trace)
    assert spans["aten::relu"]["parent"] == "A_0"
    assert spans["part"]["parent"] is None
    assert spans["B_0"]["parent"] == "part"
    counts = ledger_counts(trace)
    assert (counts["overhang"], counts["ambiguous_parent"]) == (1, 1)


def test_a_range_that_ends_a_rounding_later_is_within(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("A_0", 0, 10_000)
    kineto.annotation("part", 5_000, 5_600)
    kineto.operator("aten::relu", 6_000, 1_000)
    kineto.module("B_0", 10_300, 10_000)
    trace = converted(kineto, tmp_path)
    spans = named(trace)
    assert spans["aten::relu"]["parent"] == "part"
    assert spans["part"]["parent"] == "A_0"
    assert spans["B_0"]["parent"] is None
    assert "overhang" not in ledger_counts(trace)


def test_a_step_in_a_module_in_a_step_is_no_step(tmp_path: Path) -> None:
    kineto = training(("ProfilerStep#9", 15_000, 70_000, None))
    steps = converted(kineto, tmp_path).frame("spans").filter(pl.col("level") == "layer")["step"]
    assert steps.unique().to_list() == [3]


def test_a_module_that_holds_all_steps_keeps_them_apart(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("Trainer_0", 0, 1_000_000)
    for step in (4, 5):
        kineto.step(step, step * 100_000, 90_000)
        kineto.module("Linear_0", step * 100_000 + 1_000, 10_000)
        kineto.launch(f"gemm{step}", step * 100_000 + 2_000, step * 100_000 + 50_000, 500)
    trace = converted(kineto, tmp_path)
    spans = named_steps(trace)
    assert spans == [("gemm4", 4), ("gemm5", 5)]
    assert trace.frame("layers")["path"].unique().sort().to_list() == ["Trainer_0", "Trainer_0.Linear_0"]


def named_steps(trace: Trace) -> list[tuple[str, int]]:
    """Each kernel's name and step."""
    return trace.frame("spans").filter(pl.col("level") == "kernel").select("name", "step").rows()


def test_notes_that_torch_dynamo_makes_of_its_own_work_are_no_layers(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation("my block", 0, 50_000)
    kineto.operator("entire_frame_compile", 1_000, 20_000)
    kineto.annotation("entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/1", 2_000, 10)
    kineto.annotation("dynamo_data: compile_id=0/1", 3_000, 10)
    spans = converted(kineto, tmp_path).frame("spans")
    ranges = dict(spans.filter(pl.col("kind") == "range").select("name", "level").iter_rows())
    assert ranges.pop("my block") == "layer"
    assert set(ranges.values()) == {"application"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::conv2d, seq = 5, sizes = [[1, 2]]", "aten::conv2d"),
        (
            "{'mod': 'torch.nn.functional', 'op': 'conv2d', 'args': [{'name': '', 'shape': (1, 6)}]}",
            "torch.nn.functional.conv2d",
        ),
        (
            "{'traceMarker': ['a.py:3', 'b.py:4'], 'funcStack': '/<module>/Net::forward/conv2d'}",
            "/<module>/Net::forward/conv2d",
        ),
        ("{'mod': 'no form of theirs'}", "{'mod': 'no form of theirs'}"),
    ],
)
def test_what_differs_from_call_to_call_is_no_part_of_the_name(text: str, name: str) -> None:
    assert pl.DataFrame({"text": [text]}).select(plain_name(pl.col("text"))).item() == name
