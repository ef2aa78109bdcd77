"""ONNX Runtime profiles: nodes become layers, runs become steps, kernels belong to their nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.onnxruntime import ONNXRUNTIME
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path


def _event(category: str, name: str, ts: object, dur: object, **args: object) -> dict[str, object]:
    process = -1 if category == "Kernel" else 7
    return {
        "cat": category,
        "pid": process,
        "tid": process,
        "ts": ts,
        "dur": dur,
        "ph": "X",
        "name": name,
        "args": args,
    }


def _read(folder: Path, *events: object) -> Trace:
    path = folder / "profile.json"
    path.write_text(json.dumps(list(events)), encoding="utf-8")
    return convert([path], Options())


def _first() -> dict[str, object]:
    return _event("Session", "model_run", 0, 100)


def test_a_node_is_a_layer_with_the_name_type_and_shapes_of_the_model(tmp_path: Path) -> None:
    shapes = [{"float": [4, 3, 32, 32]}, {"int64": []}]
    node = _event(
        "Node",
        "conv1_kernel_time",
        10,
        50,
        op_name="Conv",
        node_index="3",
        input_type_shape=shapes,
        mem_in_use_delta="64",
    )
    trace = _read(tmp_path, _first(), node)
    layer = trace.frame("layers").row(0, named=True)
    assert (layer["layer_name"], layer["layer_type"], layer["layer_index"]) == ("conv1", "Conv", 0)
    assert (layer["shapes"], layer["dtypes"]) == ("[[4, 3, 32, 32], []]", '["float", "int64"]')
    assert layer["allocated_bytes"] == 64
    spans = named(trace)
    assert (spans["conv1"]["start_ns"], spans["conv1"]["duration_ns"]) == (10_000, 50_000)
    assert spans["conv1"]["parent"] == "model_run"


def test_each_run_of_the_session_is_a_step_and_nodes_keep_their_index(tmp_path: Path) -> None:
    events = []
    for run in range(3):
        at = 1_000 * run
        events += [
            _event("Node", f"{name}_kernel_time", at + 10 + n, 1, node_index=str(1 - n)) for n, name in enumerate("ab")
        ]
        events.append(_event("Session", "model_run", at, 100))
    trace = _read(tmp_path, *events)
    layers = trace.frame("layers").join(trace.frame("spans").select("span_id", "step"), on="span_id")
    rows = layers.select(pl.col("layer_name").cast(pl.String), "layer_index", "step").rows()
    assert sorted(rows) == [("a", 1, 0), ("a", 1, 1), ("a", 1, 2), ("b", 0, 0), ("b", 0, 1), ("b", 0, 2)]


def test_kernels_belong_to_the_node_they_stand_behind(tmp_path: Path) -> None:
    trace = _read(
        tmp_path,
        _first(),
        _event("Node", "a_kernel_time", 10, 5, op_name="Conv"),
        _event("Kernel", "_Z4gemmPf", 40, 30, op_name="Conv", stream="7", grid_x="4", block_x="32"),
        _event("Node", "b_kernel_time", 20, 5, op_name="Gemm"),
        _event("Kernel", "by_name", 70, 5, parent_name="a_kernel_time", stream="0x10"),
        _event("Kernel", "MemcpyDeviceToHost", 80, 5, op_name="Gemm", stream="7", grid_x="-1"),
        _event("Kernel", "of_another_operator", 90, 5, op_name="Conv", stream="7"),
    )
    spans = named(trace)
    assert (spans["gemm(float*)"]["layer"], spans["gemm(float*)"]["process_id"]) == ("a", 7)
    assert (spans["by_name"]["layer"], spans["by_name"]["stream_id"]) == ("a", 16)
    assert (spans["MemcpyDeviceToHost"]["layer"], spans["MemcpyDeviceToHost"]["kind"]) == ("b", "memcpy")
    assert spans["of_another_operator"]["attribution"] == "orphan_no_correlation"
    assert trace.frame("copies")["copy_kind"].to_list() == ["Device-to-Host"]
    assert trace.frame("kernels").filter(pl.col("grid_x") == 4)["block_x"].to_list() == [32]
    assert ledger_counts(trace)["kernel_without_node"] == 1


def test_a_node_of_no_microsecond_is_not_taken_for_a_part_of_the_next(tmp_path: Path) -> None:
    nodes = [_event("Node", "a_kernel_time", 10, 0), _event("Node", "b_kernel_time", 10, 5)]
    trace = _read(tmp_path, _first(), *nodes)
    assert {name: span["parent"] for name, span in named(trace).items()} == {
        "model_run": None,
        "a": "model_run",
        "b": "model_run",
    }
    assert sorted(trace.frame("layers")["layer_index"].to_list()) == [0, 1]


def test_a_stretch_of_the_session_around_a_run_holds_it_though_they_start_together(tmp_path: Path) -> None:
    session = _event("Session", "session_initialization", 0, 200)
    spans = named(_read(tmp_path, session, _first(), _event("Node", "a_kernel_time", 10, 5)))
    assert (spans["session_initialization"]["parent"], spans["model_run"]["parent"]) == (None, "session_initialization")


def test_nodes_of_a_loop_are_inside_it(fixtures_dir: Path) -> None:
    trace = convert([fixtures_dir / "onnxruntime" / "loop_cpu"], Options())
    layers = trace.frame("layers").with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert set(layers.filter(pl.col("layer_name").str.starts_with("body"))["path"]) == {
        "loop.body_matmul",
        "loop.body_condition",
    }
    assert layers.filter(pl.col("layer_name") == "body_matmul").height == 6  # 2 passes in each of 3 runs
    assert trace.frame("spans").filter(pl.col("level") == "layer")["step"].null_count() == 0


def test_a_real_profile_holds_every_node_in_every_run(fixtures_dir: Path) -> None:
    trace = convert([fixtures_dir / "onnxruntime" / "convnet_cpu"], Options())
    layers = trace.frame("layers").with_columns(pl.col(pl.Categorical).cast(pl.String))
    rows = layers.group_by("layer_index", "layer_name", "layer_type").len().sort("layer_index").rows()
    assert rows == [
        (0, "conv1", "Conv", 3),
        (1, "relu1", "Relu", 3),
        (2, "pool1", "MaxPool", 3),
        (3, "flatten", "Flatten", 3),
        (4, "fc", "Gemm", 3),
        (5, "prob", "Softmax", 3),
    ]
    series = trace.frame("counters")
    assert set(series["counter"].cast(pl.String)) == {"allocated_bytes", "reserved_bytes"}
    assert (series["value"] > 0).all()


def test_a_list_of_other_events_is_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2}]', encoding="utf-8")
    assert not ONNXRUNTIME.sniff(Probe(path))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_KEYS = ("ts", "dur", "pid", "tid", "name", "args", "cat", "ph")


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(_KEYS), _ANY), max_size=4))
def test_values_of_any_type_are_counted_or_refused(tmp_path: Path, changes: list[tuple[int, str, object]]) -> None:
    events = [
        _event("Session", "session_initialization", 0, 1),
        _first(),
        _event("Node", "a_kernel_time", 10, 5, op_name="Conv", node_index="0"),
        _event("Kernel", "k", 40, 30, op_name="Conv", stream="7"),
    ]
    for index, key, value in changes:
        events[index][key] = value
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    try:
        trace = convert([path], Options(), format_name="onnxruntime")
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []
