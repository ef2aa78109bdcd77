"""The six rules of linking, each on a trace small enough to check by eye. Times in ns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts, named
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert, relayer
from xsp_ingest.ingester import Options
from xsp_model import XspError

ENGINE = 200  # the autograd engine's thread
_ENGINE_CALL = "autograd::engine::evaluate_function"


def test_time_zero_is_the_earliest_start_and_every_ns_is_kept(tmp_path: Path) -> None:
    kineto = KinetoTrace(baseTimeNanoseconds=1_700_000_000_000_000_000)
    kineto.operator("aten::relu", 1_305_516_338_095_402, 61_461)
    kineto.operator("aten::add", 1_305_516_338_095_400, 1)
    trace = converted(kineto, tmp_path)
    spans = named(trace)
    assert (spans["aten::relu"]["start_ns"], spans["aten::relu"]["duration_ns"]) == (2, 61_461)
    run = trace.frame("runs").to_dicts()[0]
    assert run["clock_origin_ns"] == 1_305_516_338_095_400
    assert run["epoch_ns"] == 1_700_000_000_000_000_000 + 1_305_516_338_095_400


def test_work_hangs_under_its_launch_and_the_launch_under_the_innermost_operator(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    kineto.operator("aten::addmm", 2_000, 40_000)
    kineto.launch("gemm", 3_000, 20_000, 7_000)
    spans = named(converted(kineto, tmp_path))
    assert spans["gemm"]["parent"] == "cudaLaunchKernel"
    assert spans["cudaLaunchKernel"]["parent"] == "aten::addmm"
    assert spans["aten::addmm"]["parent"] == "aten::linear"
    assert spans["aten::linear"]["parent"] is None


def test_of_a_runtime_and_a_driver_call_with_one_id_the_outer_one_is_the_launch(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.runtime("cuLaunchKernel", 1_100, 500, correlation=9, category="cuda_driver")
    kineto.runtime("cudaLaunchKernel", 1_000, 2_000, correlation=9)
    kineto.kernel("gemm", 5_000, 100, correlation=9)
    spans = named(converted(kineto, tmp_path))
    assert spans["gemm"]["parent"] == "cudaLaunchKernel"
    assert spans["cuLaunchKernel"]["parent"] == "cudaLaunchKernel"


def test_orphans_stay_and_say_why(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.runtime("cudaLaunchKernel", 10_000, 1_000, correlation=50)
    kineto.kernel("launched", 20_000, 100, correlation=50)
    kineto.kernel("before", 21_000, 100, correlation=7)
    kineto.kernel("early", 9_000, 100, correlation=60)
    kineto.kernel("missing", 22_000, 100, correlation=61)
    kineto.kernel("no id", 23_000, 100, correlation=None)
    spans = named(converted(kineto, tmp_path))
    assert {name: spans[name]["attribution"] for name in ("launched", "before", "early", "missing", "no id")} == {
        "launched": "model_only",
        "before": "orphan_before_window",
        "early": "orphan_before_window",
        "missing": "orphan_no_launch",
        "no id": "orphan_no_correlation",
    }
    assert spans["before"]["parent"] is None
    assert spans["before"]["phase"] is None


def test_an_overhang_of_a_microsecond_nests_silently_and_more_is_counted(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("outer", 0, 10_000)
    kineto.operator("rounded", 1_000, 10_000)  # ends 1 us late
    kineto.operator("outer2", 20_000, 10_000)
    kineto.operator("late", 21_000, 10_001)
    trace = converted(kineto, tmp_path)
    spans = named(trace)
    assert (spans["rounded"]["parent"], spans["late"]["parent"]) == ("outer", "outer2")
    assert ledger_counts(trace)["overhang"] == 1


def test_a_span_inside_two_that_overlap_is_counted_as_ambiguous(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("a", 0, 10_000)
    kineto.operator("b", 5_000, 10_000)
    kineto.operator("in both", 6_000, 1_000)
    kineto.operator("in b alone", 12_000, 1_000)
    trace = converted(kineto, tmp_path)
    assert ledger_counts(trace)["ambiguous_parent"] == 1
    assert named(trace)["in both"]["parent"] == "b"


def test_touching_spans_do_not_nest(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("first", 0, 10_000)
    kineto.operator("second", 10_000, 10_000)
    assert named(converted(kineto, tmp_path))["second"]["parent"] is None


def test_threads_do_not_mix(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("outer", 0, 10_000)
    kineto.operator("elsewhere", 1_000, 1_000, thread_id=7)
    assert named(converted(kineto, tmp_path))["elsewhere"]["parent"] is None


def _two_modules(kineto: KinetoTrace) -> None:
    """Block_0 holds Linear_0 and, after it, an own residual add."""
    kineto.module("Net_0", 0, 100_000)
    kineto.module("Block_0", 1_000, 90_000)
    kineto.module("Linear_0", 2_000, 30_000)
    kineto.operator("aten::linear", 3_000, 20_000, shapes=[[8, 16], [16, 16]])
    kineto.launch("gemm", 4_000, 150_000, 700)
    kineto.operator("aten::add", 40_000, 20_000)
    kineto.launch("add", 41_000, 160_000, 300)


def test_a_container_is_a_layer_exactly_where_it_works_itself(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    _two_modules(kineto)
    trace = converted(kineto, tmp_path)
    layers = trace.frame("layers").with_columns(pl.col(pl.Categorical).cast(pl.String)).to_dicts()
    assert [(x["layer_name"], x["layer_index"], x["is_container"], x["self_host_ns"], x["path"]) for x in layers] == [
        ("Net_0", None, True, 10_000, "Net_0"),
        ("Block_0", 1, True, 60_000, "Net_0.Block_0"),
        ("Linear_0", 0, False, 30_000, "Net_0.Block_0.Linear_0"),
    ]
    assert [x["shapes"] for x in layers] == [None, None, "[[8, 16], [16, 16]]"]
    assert layers[2]["layer_type"] == "Linear"
    spans = trace.frame("spans").filter(pl.col("level") == "kernel")
    assert spans["attribution"].to_list() == ["layer", "layer"]
    assert spans["layer_id"].to_list() == [layers[2]["span_id"], layers[1]["span_id"]]


def test_a_module_that_another_one_outlasts_is_no_container(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("Linear_0", 0, 30_000)
    kineto.module("Linear_1", 20_000, 30_000)  # runs on beside it
    kineto.operator("aten::linear", 21_000, 20_000)
    layers = converted(kineto, tmp_path).frame("layers")
    assert layers.select("layer_name", "layer_index", "is_container", "self_host_ns").rows() == [
        ("Linear_0", 0, False, 30_000),
        ("Linear_1", 1, False, 30_000),
    ]


def test_steps_are_numbered_by_name_and_hold_other_threads_roots(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.step(6, 0, 50_000)
    kineto.step(7, 60_000, 50_000)
    kineto.operator("forward", 1_000, 10_000)
    kineto.operator("backward", 70_000, 10_000, thread_id=ENGINE)
    kineto.launch("late kernel", 2_000, 90_000, 500)
    kineto.operator("between", 55_000, 1_000)
    spans = named(converted(kineto, tmp_path))
    assert [spans[n]["step"] for n in ("forward", "backward", "late kernel", "between")] == [6, 7, 6, None]
    assert spans["backward"]["parent"] == "ProfilerStep#7"


def _training(kineto: KinetoTrace, *, flow: bool) -> None:
    """A linear layer, its backward on the engine's thread, an optimizer step, and a loss outside of modules."""
    kineto.module("Linear_0", 0, 30_000)
    number = None if flow else 5
    thread = None if flow else 1
    kineto.operator("aten::linear", 1_000, 25_000, sequence_number=number)
    kineto.operator("aten::addmm", 2_000, 20_000, sequence_number=number)
    kineto.launch("gemm", 3_000, 200_000, 700)
    kineto.operator("aten::mse_loss", 40_000, 10_000, sequence_number=None if flow else 6)
    kineto.launch("loss", 41_000, 201_000, 100)
    for name, start, duration in (
        (f"{_ENGINE_CALL}: AddmmBackward0", 60_000, 30_000),
        ("AddmmBackward0", 61_000, 25_000),
    ):
        kineto.operator(name, start, duration, thread_id=ENGINE, sequence_number=number, forward_thread_id=thread)
    if flow:
        kineto.backward_flow(2_000, 61_000, backward_thread=ENGINE)
    kineto.launch("wgrad", 62_000, 210_000, 900, thread_id=ENGINE)
    kineto.annotation("Optimizer.step#SGD.step", 100_000, 20_000)
    kineto.operator("aten::add_", 101_000, 9_000)
    kineto.launch("sgd", 102_000, 220_000, 50)


@pytest.mark.parametrize("flow", [False, True])
def test_backward_work_belongs_to_the_layer_of_its_forward_twin(tmp_path: Path, *, flow: bool) -> None:
    kineto = KinetoTrace()
    _training(kineto, flow=flow)
    trace = converted(kineto, tmp_path)
    work = trace.frame("spans").filter(pl.col("level") == "kernel").sort("start_ns")
    assert work["name"].to_list() == ["gemm", "loss", "wgrad", "sgd"]
    assert work["attribution"].to_list() == ["layer", "model_only", "layer", "model_only"]
    assert work["layer_id"][0] == work["layer_id"][2]
    assert work["phase"].to_list() == ["forward", "other", "backward", "optimizer"]
    twin = trace.frame("operators").filter(pl.col("forward_id").is_not_null())
    names = trace.frame("spans")["name"]
    assert {(names[a], names[b]) for a, b in twin.select("span_id", "forward_id").iter_rows()} >= {
        ("AddmmBackward0", "aten::addmm")
    }


def test_a_module_called_again_inside_backward_is_recompute(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("CheckpointFunctionBackward", 0, 90_000, sequence_number=3, forward_thread_id=1)
    kineto.module("Linear_0", 10_000, 40_000)
    kineto.operator("aten::linear", 11_000, 20_000)
    kineto.launch("again", 12_000, 100_000, 500)
    kineto.launch("gradient", 60_000, 110_000, 500)
    work = converted(kineto, tmp_path).frame("spans").filter(pl.col("level") == "kernel")
    assert work["phase"].to_list() == ["recompute", "backward"]
    assert work["attribution"].to_list() == ["layer", "model_only"]


def test_graph_replays_are_visible_and_in_no_layer(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.module("Linear_0", 0, 50_000)
    kineto.operator("aten::linear", 1_000, 2_000)
    launch = kineto.runtime("cudaGraphLaunch", 10_000, 5_000)
    for n in range(3):
        kineto.kernel(f"node {n}", 20_000 + 1_000 * n, 500, correlation=launch)
    work = converted(kineto, tmp_path).frame("spans").filter(pl.col("level") == "kernel")
    assert work["attribution"].to_list() == ["graph_replay"] * 3
    assert work["layer_id"].null_count() == 3
    assert work["parent_id"].n_unique() == 1


def test_without_modules_nearly_all_holding_ranges_are_the_layers_else_operators(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation("encoder", 0, 30_000)
    kineto.operator("aten::linear", 1_000, 20_000)
    kineto.launch("gemm", 2_000, 100_000, 500)
    kineto.annotation("decoder", 40_000, 15_000)
    kineto.operator("aten::linear", 41_000, 9_000)
    kineto.launch("gemm", 42_000, 105_000, 400)
    assert converted(kineto, tmp_path).frame("runs")["layer_source"].to_list() == ["range"]
    kineto.operator("aten::softmax", 60_000, 20_000)
    kineto.launch("softmax", 61_000, 110_000, 500)
    trace = converted(kineto, tmp_path)
    assert trace.frame("runs")["layer_source"].to_list() == ["operator"]
    assert set(trace.frame("spans")["attribution"].drop_nulls()) == {"layer"}


@pytest.mark.parametrize("on_device", [True, False])
def test_a_lone_range_around_everything_divides_nothing(tmp_path: Path, *, on_device: bool) -> None:
    kineto = KinetoTrace()
    for call in range(2):
        kineto.annotation("model_inference", call * 100_000, 90_000)
        for at, name in ((10_000, "aten::conv2d"), (40_000, "aten::relu")):
            kineto.operator(name, call * 100_000 + at, 20_000)
            if on_device:
                kineto.launch("k", call * 100_000 + at + 1_000, call * 100_000 + at + 9_000, 900)
    trace = converted(kineto, tmp_path)
    assert trace.frame("runs")["layer_source"].to_list() == ["operator"]
    kinds = trace.frame("layers").filter(pl.col("source") == "operator")["layer_type"]
    assert kinds.cast(pl.String).to_list() == ["aten::conv2d", "aten::relu"] * 2


def test_operators_that_repeat_in_a_step_are_layers_of_their_own(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for step in (1, 2):
        kineto.step(step, step * 100_000, 90_000)
        kineto.operator("aten::conv2d", step * 100_000 + 1_000, 10_000)
        kineto.operator("aten::relu", step * 100_000 + 20_000, 10_000)
        kineto.operator("aten::conv2d", step * 100_000 + 40_000, 10_000)
    layers = converted(kineto, tmp_path).frame("layers")
    assert layers["layer_name"].to_list() == ["aten::conv2d#1", "aten::relu", "aten::conv2d#2"] * 2
    assert layers["layer_index"].to_list() == [0, 1, 2] * 2
    assert layers["layer_type"].unique(maintain_order=True).to_list() == ["aten::conv2d", "aten::relu"]


def test_the_user_may_name_steps_and_layers_by_regex(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.annotation("request 12", 0, 90_000)
    kineto.annotation("encode", 1_000, 20_000)
    kineto.annotation("bookkeeping", 30_000, 20_000)
    path = kineto.write(tmp_path / "t.json")
    trace = convert([path], Options(model_ranges=("^request",), layer_ranges=("^enc",)))
    spans = named(trace)
    assert [spans[n]["level"] for n in ("request 12", "encode", "bookkeeping")] == ["model", "layer", "application"]
    assert spans["encode"]["step"] == 12


def test_memory_goes_to_the_innermost_module(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    _two_modules(kineto)
    for at, size in ((3_500, 1_024), (45_000, 4_096), (46_000, -1_024)):
        kineto.memory(at, size, allocated=8_192, reserved=16_384)
    trace = converted(kineto, tmp_path)
    assert trace.frame("layers")["allocated_bytes"].to_list() == [None, 4_096, 1_024]
    assert relayer(trace, "module").frame("layers").equals(trace.frame("layers"))


def test_ranks_are_runs_of_one_trace_on_one_clock(tmp_path: Path) -> None:
    for rank in (1, 0):
        kineto = KinetoTrace(distributedInfo={"rank": rank, "world_size": 2}, baseTimeNanoseconds=1_000_000 * rank)
        kineto.operator("aten::linear", 5_000, 20_000)
        kineto.launch(f"gemm {rank}", 6_000, 30_000, 900)
        kineto.write(tmp_path / f"some_{rank}.json.gz")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").select("run_id", "rank").rows() == [(0, 0), (1, 1)]
    work = trace.frame("spans").filter(pl.col("level") == "kernel")
    assert work.select("name", "run_id", "start_ns").rows() == [("gemm 0", 0, 25_000), ("gemm 1", 1, 1_025_000)]
    assert trace.frame("layers")["layer_index"].to_list() == [0, 0]


def test_layers_taken_again_from_a_trace_equal_those_taken_at_once(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    _training(kineto, flow=False)
    path = kineto.write(tmp_path / "t.json")
    at_once = convert([path], Options(layer_source="operator"))
    again = relayer(convert([path], Options()), "operator")
    for table in ("spans", "layers", "operators", "kernels"):
        assert again.frame(table).equals(at_once.frame(table)), table
    with pytest.raises(XspError, match="no layers of source range"):
        relayer(again, "range")


def test_files_of_different_times_read_together_are_told(tmp_path: Path) -> None:
    for number, start in enumerate((1_000, 900_000_000_000)):
        kineto = KinetoTrace(baseTimeNanoseconds=1_000)
        kineto.operator("aten::linear", start, 20_000)
        kineto.write(tmp_path / f"{number}.json")
    assert ledger_counts(convert([tmp_path], Options()))["runs_apart"] == 2


def test_a_migration_of_unified_memory_has_no_launch_by_nature() -> None:
    file = Path(__file__).parents[3] / "fixtures" / "nsys_sqlite" / "messages_synthetic" / "trace.sqlite"
    spans = convert([file], Options()).frame("spans").filter(pl.col("attribution") == "unified_memory")
    assert spans.select(pl.col("name").cast(pl.String), "duration_ns").rows() == [
        ("[CUDA memcpy Unified Host-to-Device]", 20_000)
    ]
