"""`nn.DataParallel` has the work of its replicas, which run on threads that live in its call alone. Times in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.linked import converted, named
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

ENGINE, FIRST, SECOND, LOADER = 200, 301, 302, 400


def parallel(*, recorded: bool) -> KinetoTrace:
    """A step of a DataParallel over two replicas; as torch records it by default, and with `profile_all_threads`.

    By default nothing of a thread that began while recording is there but its calls of the runtime. Sequence numbers
    begin anew on each thread: that of the replicas' addmm is that of the caller's add.
    """
    kineto = KinetoTrace()
    kineto.step(1, 0, 400_000)
    kineto.module("DataParallel_0", 10_000, 90_000)
    kineto.annotation("DataParallel.forward", 12_000, 86_000)
    kineto.launch("scatter", 14_000, 500_000, 3)
    for device, thread in enumerate((FIRST, SECOND)):
        if recorded:
            kineto.operator("aten::addmm", 30_000 + device, 9_000, thread_id=thread, sequence_number=1)
        kineto.launch(f"gemm{device}", 31_000, 510_000, 1_000 * (1 + device), thread_id=thread, device_id=device)
    kineto.operator("aten::add", 90_000, 5_000, sequence_number=1)
    kineto.launch("gather", 91_000, 520_000, 5)
    kineto.launch("copy", 40_000, 530_000, 7, thread_id=LOADER)  # a thread that works outside of the call as well
    kineto.launch("copy", 140_000, 540_000, 7, thread_id=LOADER)
    for forward, (name, at) in enumerate((("AddBackward0", 200_000), ("mm0", 220_000), ("mm1", 240_000)), start=1):
        kineto.operator(
            name if forward == 1 else f"AddmmBackward{forward - 2}",
            at,
            9_000,
            thread_id=ENGINE,
            sequence_number=1,
            forward_thread_id=forward,
        )
        kineto.launch(f"{name}_bw", at + 1_000, 400_000 + at, 100 * forward, thread_id=ENGINE)
    return kineto


def modules(trace: Trace) -> dict[tuple[str, str], tuple[int, int]]:
    """B06: by module and phase device time and its own."""
    table = run(find("B06"), StepView.of(trace)).table
    rows = table.select("module_path", "phase", "device_sum_ns", "self_device_sum_ns").rows()
    return {(path, phase): (total, own) for path, phase, total, own in rows}


def test_kernels_that_replicas_launch_are_of_the_call(tmp_path: Path) -> None:
    trace = converted(parallel(recorded=False), tmp_path)
    forward = 3 + 1_000 + 2_000 + 5
    assert modules(trace)["DataParallel_0", "forward"] == (forward, forward)
    layers = run(find("A11"), StepView.of(trace)).table
    assert layers.select("layer_name", "kernel_duration_ns").rows() == [("DataParallel_0", forward + 100)]


def test_a_backward_operator_of_a_thread_that_was_not_recorded_has_no_twin_of_another(tmp_path: Path) -> None:
    trace = converted(parallel(recorded=False), tmp_path)
    assert twins(trace) == {"AddBackward0": "aten::add"}


def test_each_replicas_backward_is_of_its_own_forward(tmp_path: Path) -> None:
    trace = converted(parallel(recorded=True), tmp_path)
    assert twins(trace) == {"AddBackward0": "aten::add", "AddmmBackward0": FIRST, "AddmmBackward1": SECOND}
    assert modules(trace)["DataParallel_0", "backward"] == (600, 600)


def test_flows_say_which_forward_thread_is_which(tmp_path: Path) -> None:
    kineto = parallel(recorded=True)
    for forward_ns, thread, backward_ns in ((90_000, None, 200_000), (30_001, SECOND, 220_000)):
        kineto.backward_flow(forward_ns, backward_ns, forward_thread=thread, backward_thread=ENGINE)
    kineto.operator(
        "AddmmBackward7", 260_000, 9_000, thread_id=ENGINE, sequence_number=1, forward_thread_id=2
    )  # without a flow of its own
    assert twins(converted(kineto, tmp_path)) == {
        "AddBackward0": "aten::add",
        "AddmmBackward0": SECOND,
        "AddmmBackward1": FIRST,
        "AddmmBackward7": SECOND,
    }


def test_a_replicas_modules_are_in_the_call(tmp_path: Path) -> None:
    kineto = parallel(recorded=True)
    kineto.module("Linear_0", 29_000, 20_000, thread_id=FIRST)
    trace = converted(kineto, tmp_path)
    assert set(trace.frame("layers")["path"]) == {"DataParallel_0", "DataParallel_0.Linear_0"}
    assert modules(trace)["DataParallel_0.Linear_0", "forward"] == (1_000, 1_000)


def test_other_threads_are_not(tmp_path: Path) -> None:
    work = converted(parallel(recorded=False), tmp_path).frame("spans").filter(pl.col("name") == "copy")
    assert work["attribution"].to_list() == ["model_only", "model_only"]


def test_own_host_time_leaves_out_what_replicas_do_side_by_side_once(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("DataParallel_0", 10_000, 90_000)
    kineto.module("Net_0", 30_000, 40_000, thread_id=FIRST)
    kineto.module("Net_1", 35_000, 40_000, thread_id=SECOND)
    layers = converted(kineto, tmp_path).frame("layers")
    assert layers.filter(pl.col("layer_name") == "DataParallel_0")["self_host_ns"].to_list() == [45_000]


def test_a_range_alone_is_the_call_too(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation("DataParallel.forward", 10_000, 90_000)
    kineto.launch("gemm", 31_000, 510_000, 1_000, thread_id=FIRST)
    assert named(converted(kineto, tmp_path))["cudaLaunchKernel"]["parent"] == "DataParallel.forward"


def twins(trace: Trace) -> dict[str, str | int]:
    """Each backward operator's forward twin: of those that are named alike its thread."""
    spans = trace.frame("spans")
    operators = trace.frame("operators").filter(pl.col("forward_id").is_not_null())
    names, threads = spans["name"].to_list(), spans["thread_id"].to_list()
    return {
        names[at]: threads[twin] if names[twin] == "aten::addmm" else names[twin]
        for at, twin in operators.select("span_id", "forward_id").iter_rows()
    }
