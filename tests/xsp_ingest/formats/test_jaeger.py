"""Jaeger files of MLModelScope: levels, layers, launches, counters, lanes; and what can be wrong with them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.make.jaeger import LAYERS, MlModelScope, leveled_traces
from tests.helpers.linked import ledger_counts, named
from xsp_ingest.convert import convert, relayer
from xsp_ingest.files.content import Probe
from xsp_ingest.files.values import finite, integer
from xsp_ingest.formats.jaeger import JAEGER
from xsp_ingest.formats.jaeger.document import JaegerSpan, Reference, lists_as_json, parents, sizes
from xsp_ingest.formats.jaeger.mlmodelscope import HostSpan, lanes
from xsp_ingest.ingester import Options
from xsp_model import Level, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace


def _converted(folder: Path, *traces: MlModelScope, **options: Any) -> Trace:  # noqa: ANN401
    path = folder / "jaeger.json"
    path.write_text(json.dumps({"data": [trace.document() for trace in traces]}))
    return convert([path], Options(**options))


def _as_texts(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.fixture
def whole_file(tmp_path: Path) -> Trace:
    path = tmp_path / "traces.json"
    path.write_bytes(leveled_traces())
    return convert([path], Options())


def test_each_trace_of_a_file_is_a_run(whole_file: Trace) -> None:
    runs = whole_file.frame("runs")
    assert runs.select("run_id", "level_captured", "framework", "batch_size").rows() == [
        (0, "M", None, 256),
        (1, "ML", "tensorflow", 256),
        (2, "MLG", "tensorflow", 256),
        (3, "MLG", "tensorflow", 256),
    ]
    assert runs["epoch_ns"].to_list() == [1_553_991_123_000_000_000] * 4


def test_runs_of_several_levels_in_one_file_are_warned_of(whole_file: Trace, tmp_path: Path) -> None:
    assert ledger_counts(whole_file)["levels_mixed"] == 4
    alike = [MlModelScope(n) for n in range(2)]
    for trace in alike:
        trace.predict(0, 10, "MODEL_TRACE", "")
    assert "levels_mixed" not in ledger_counts(_converted(tmp_path, *alike))


def test_layers_come_with_name_type_shape_and_memory_in_the_order_stated(whole_file: Trace) -> None:
    layers = _as_texts(whole_file.frame("layers"))
    once = layers.unique("layer_index", keep="first").sort("layer_index")
    assert once.select("layer_index", "layer_name", "layer_type", "shapes", "allocated_bytes").rows() == [
        (0, "conv2d/Conv2D", "Conv2D", "[[256, 64, 112, 112]]", 822_083_584),
        (1, "conv2d/bn", "FusedBatchNorm", "[[256, 64, 112, 112]]", 822_083_584),
        (2, "conv2d/Relu", "Relu", "[[256, 64, 112, 112]]", 822_083_584),
        (3, "dense/MatMul", "MatMul", "[[256, 1001]]", 1_025_024),
    ]
    assert layers.height == 3 * 3 * 4  # runs with layers, batches, layers


def test_batches_are_steps_and_microseconds_become_exact_ns(whole_file: Trace) -> None:
    spans = _as_texts(whole_file.frame("spans"))
    steps = spans.filter(pl.col("kind") == "step", pl.col("run_id") == 0)
    assert steps.select("name", "step", "start_ns", "duration_ns").rows() == [
        ("c_predict", 0, 1_000_000, 6_000_000),
        ("c_predict", 1, 61_000_000, 6_010_000),
        ("c_predict", 2, 121_000_000, 6_020_000),
    ]


def test_kernels_hang_under_their_launch_in_their_layer_with_their_counters(whole_file: Trace) -> None:
    spans = _as_texts(whole_file.frame("spans"))
    kernels = spans.filter(pl.col("level") == "kernel", pl.col("run_id") == 3, pl.col("step") == 0)
    names = dict(spans.select("span_id", "name").rows())
    assert [names[i] for i in kernels["layer_id"]] == [
        "conv2d/Conv2D",
        "conv2d/bn",
        "conv2d/Relu",
        "dense/MatMul",
        "dense/MatMul",
    ]
    assert {names[i] for i in kernels["parent_id"]} == {"cudaLaunchKernel"}
    first = kernels["span_id"][0]
    metrics = _as_texts(whole_file.frame("metrics")).filter(pl.col("span_id") == first)
    assert metrics.select("metric", "value", "unit", "source").rows() == [
        ("achieved_occupancy", 0.132, "1", "cupti"),
        ("dram_read_bytes", 12_100_000.0, "byte", "cupti"),
        ("dram_write_bytes", 296_000_000.0, "byte", "cupti"),
        ("flop_count_sp", 62e9, "flop", "cupti"),
    ]
    launched = whole_file.frame("kernels").filter(pl.col("span_id") == first)
    assert launched.select("grid_x", "grid_y", "grid_z", "block_x", "static_shared_bytes").rows() == [
        (1568, 1, 1, 256, 1024)
    ]


def test_layers_keep_the_stated_order_where_they_ran_in_another(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "FRAMEWORK_TRACE", "")
    trace.layer(1, LAYERS[1], 100, 50, model)
    trace.layer(0, LAYERS[0], 200, 50, model)
    layers = _as_texts(_converted(tmp_path, trace).frame("layers")).sort("layer_index")
    assert layers["layer_name"].to_list() == ["conv2d/Conv2D", "conv2d/bn"]


def test_taking_the_layers_again_keeps_what_was_stated(whole_file: Trace) -> None:
    columns = ["span_id", "layer_index", "layer_name", "layer_type", "shapes"]
    again = relayer(whole_file, "range")
    assert (
        _as_texts(again.frame("layers")).select(columns).equals(_as_texts(whole_file.frame("layers")).select(columns))
    )


def test_layers_side_by_side_do_not_nest(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "FRAMEWORK_TRACE", "")
    trace.layer(0, LAYERS[0], 100, 300, model)
    trace.layer(1, LAYERS[1], 200, 50, model)
    converted = _converted(tmp_path, trace)
    spans = named(converted)
    assert spans["conv2d/bn"]["parent"] == spans["conv2d/Conv2D"]["parent"] == "c_predict"
    assert not converted.frame("layers")["is_container"].any()


def test_a_launch_while_two_layers_ran_goes_to_the_later_and_is_counted(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "SYSTEM_LIBRARY_TRACE", "")
    trace.layer(0, LAYERS[0], 100, 300, model)
    trace.layer(1, LAYERS[1], 200, 100, model)
    trace.launch(250, ("k", "[1 1 1]", 5), 1, model, run_us=400, counted=False)
    converted = _converted(tmp_path, trace)
    assert named(converted)["k"]["layer"] == "conv2d/bn"
    assert ledger_counts(converted)["ambiguous_lane"] == 1


def test_a_reference_to_a_layer_settles_which_one_it_was(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "SYSTEM_LIBRARY_TRACE", "")
    trace.layer(0, LAYERS[0], 100, 300, model)
    first = str(trace.spans[-1]["spanID"])
    trace.layer(1, LAYERS[1], 200, 100, model)
    trace.launch(250, ("k", "[1 1 1]", 5), 1, first, run_us=400, counted=False)
    converted = _converted(tmp_path, trace)
    assert named(converted)["k"]["layer"] == "conv2d/Conv2D"
    assert "ambiguous_lane" not in ledger_counts(converted)


def test_an_application_span_that_crosses_a_batch_hides_nothing(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "FRAMEWORK_TRACE", "")
    trace.span("preprocess", 50, 2_000, level="APPLICATION_TRACE")
    trace.layer(0, LAYERS[0], 100, 300, model)
    spans = named(_converted(tmp_path, trace))
    assert spans["conv2d/Conv2D"]["parent"] == "c_predict"
    assert spans["conv2d/Conv2D"]["step"] == 0


def test_counters_without_an_execution_stay_with_a_kernel_of_unknown_duration(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "SYSTEM_LIBRARY_TRACE", "")
    kernel = LAYERS[0].kernels[0]
    trace.launch(10, kernel, 1, model, run_us=None, counted=True)
    converted = _converted(tmp_path, trace)
    span = named(converted)[kernel[0]]
    assert (span["duration_ns"], span["parent"]) == (None, "cudaLaunchKernel")
    assert converted.frame("metrics")["span_id"].unique().to_list() == [span["span_id"]]
    assert ledger_counts(converted)["kernel_without_execution"] == 1


def test_the_first_tracer_put_launches_and_executions_at_the_hardware_level(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.predict(0, 1_000, "HARDWARE_TRACE", "")
    tags = {"correlation_id": "7", "function_name": "cuLaunchKernel", "kernel": "im2col", "grid_dim": "[1 7 1]"}
    trace.span("launch_kernel", 10, 5, level="HARDWARE_TRACE", parent=model, tags=tags)
    trace.span("gpu_kernel", 20, 9, level="HARDWARE_TRACE", parent=model, tags={"correlation_id": "7"})
    trace.span("stream_synchronize", 40, 3, level="HARDWARE_TRACE", parent=model)
    converted = _converted(tmp_path, trace)
    spans = named(converted)
    assert spans["im2col"]["parent"] == "cuLaunchKernel"
    assert spans["stream_synchronize"]["level"] == "runtime"
    assert converted.frame("kernels").select("grid_x", "grid_y", "grid_z").rows() == [(1, 7, 1)]


def test_copies_and_fills_are_device_work(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    kinds = {"copy_kind": "h2d", "src_kind": "pageable", "dst_kind": "device", "bytes": "4096"}
    trace.span("gpu_memcpy", 10, 5, level="SYSTEM_LIBRARY_TRACE", tags={"correlation_id": "1", **kinds})
    trace.span("gpu_memset", 20, 5, level="SYSTEM_LIBRARY_TRACE", tags={"memory_kind": "device", "bytes": "8"})
    converted = _converted(tmp_path, trace)
    assert set(named(converted)) == {"Memcpy HtoD", "Memset"}
    assert _as_texts(converted.frame("copies")).drop("span_id", "virtual_address").rows() == [
        (4096, "Host-to-Device", "Pageable", "Device"),
        (8, None, None, "Device"),
    ]


def test_levels_of_both_tracers_are_known(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    levels = ["NO", "APPLICATION", "MODEL", "FRAMEWORK", "LIBRARY", "ML_LIBRARY", "SYSTEM_LIBRARY", "HARDWARE", "FULL"]
    for nth, level in enumerate(levels):
        trace.span(level, nth * 10, 5, level=f"{level}_TRACE")
    trace.span("QUANTUM", 900, 5, level="QUANTUM_TRACE")
    converted = _converted(tmp_path, trace)
    assert {name: span["level"] for name, span in named(converted).items()} == {
        "NO": "application",
        "APPLICATION": "application",
        "MODEL": "model",
        "FRAMEWORK": "operator",  # a framework's call that is no node of the model
        "LIBRARY": "library",
        "ML_LIBRARY": "library",
        "SYSTEM_LIBRARY": "runtime",
        "HARDWARE": "runtime",
        "FULL": "application",
        "QUANTUM": "application",
    }
    assert ledger_counts(converted)["unknown_level"] == 1


def test_users_may_name_the_steps_and_the_layers(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    model = trace.span("infer", 0, 1_000, level="MODEL_TRACE")
    trace.layer(0, LAYERS[0], 100, 50, model)
    trace.layer(1, LAYERS[2], 200, 50, model)
    spans = named(_converted(tmp_path, trace, model_ranges=["^infer$"], layer_ranges=["Conv2D"]))
    assert (spans["infer"]["kind"], spans["infer"]["step"]) == ("step", 0)
    assert (spans["conv2d/Conv2D"]["level"], spans["conv2d/Relu"]["level"]) == ("layer", "operator")


def _asynchronous() -> MlModelScope:
    """As MXNet predicts: the call returns after 43 us; one layer had begun, two follow, each with a kernel."""
    trace = MlModelScope(0)
    outer = trace.span("PredictImage", 0, 20_000, level="APPLICATION_TRACE", tags={"batch_size": "1"})
    trace.span("c_predict", 1_000, 43, level="MODEL_TRACE", parent=outer)
    for number, start in enumerate((900, 4_000, 8_000)):
        trace.layer(number, LAYERS[0], start, 3_000, outer)
        trace.launch(
            start + 500, (LAYERS[0].kernels[0][0], "[1 1 1]", 2_000), number, outer, run_us=start + 600, counted=False
        )
    trace.span("c_read", 15_000, 100, level="MODEL_TRACE", parent=outer)
    return trace


def test_the_step_of_a_call_that_returns_at_once_ends_with_its_work(tmp_path: Path) -> None:
    trace = _converted(tmp_path, _asynchronous())
    spans = _as_texts(trace.frame("spans"))
    step = spans.filter(pl.col("kind") == "step")
    assert step.select("name", "duration_ns").rows() == [("c_predict", 10_000_000)]
    assert spans.filter(pl.col("level").is_in(["layer", "kernel"]))["step"].to_list() == [0] * 6
    assert spans.filter(pl.col("kind") == "kernel")["attribution"].to_list() == ["layer"] * 3
    assert ledger_counts(trace)["steps_inferred"] == 1


def test_the_step_of_a_call_that_waits_stays_as_long_as_it_was(whole_file: Trace) -> None:
    assert "steps_inferred" not in ledger_counts(whole_file)


def test_any_span_may_be_the_step_and_a_pattern_of_none_is_warned_of(tmp_path: Path) -> None:
    spans = _as_texts(_converted(tmp_path, _asynchronous(), model_ranges=["^PredictImage$"]).frame("spans"))
    kinds = dict(spans.select("name", "kind").iter_rows())
    assert (kinds["PredictImage"], kinds["c_predict"]) == ("step", "range")
    lost = _converted(tmp_path, _asynchronous(), model_ranges=["^PredictImage$", "nobody"])
    assert ledger_counts(lost)["model_range_unmatched"] == 1


def test_a_step_of_the_pipeline_is_called_by_its_tag(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    trace.span("postprocess_general_step", 0, 10, level="APPLICATION_TRACE", tags={"step_name": "predict general"})
    assert "predict general" in named(_converted(tmp_path, trace))


def test_nothing_private_is_read(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    private = {"hostname": "ip-1-2-3-4", "target_graph_file": "/home/someone/graph.json"}
    trace.span("download", 0, 5, level="APPLICATION_TRACE", tags=private)
    converted = _converted(tmp_path, trace)
    everything = "".join(str(converted.frame(name).to_dicts()) for name in converted.parts)
    assert "ip-1-2-3-4" not in everything
    assert "someone" not in everything


def test_a_single_trace_without_the_envelope_is_read_too(tmp_path: Path) -> None:
    trace = MlModelScope(0)
    trace.predict(0, 1_000, "MODEL_TRACE", "")
    path = tmp_path / "one.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace.document()).encode()))
    assert JAEGER.sniff(Probe(path))
    assert convert([path], Options()).row_count == 1


@pytest.mark.parametrize(
    ("content", "claims"),
    [
        ('{"data":[{"traceID":"1"', True),
        (' {\n "total": 0,\n "data": [ {"spans": []', True),
        ('{"data": []}', True),
        ('{"traceID": "1", "spans": []}', True),
        ('{"data": [1, 2]}', False),
        ('{"schemaVersion": 1, "traceEvents": []}', False),
        ('[{"ph": "X"}]', False),
        ('{"$schema": "https://www.speedscope.app/file-format-schema.json"', False),
    ],
)
def test_only_jaeger_files_are_claimed(content: str, claims: bool, tmp_path: Path) -> None:  # noqa: FBT001
    path = tmp_path / "file.json"
    path.write_text(content)
    assert bool(JAEGER.sniff(Probe(path))) is claims


@pytest.mark.parametrize("kept", [40, 400, 4_000, 40_000])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_off_says_so(kept: int, packed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    content = leveled_traces()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(content)[: kept // 20] if packed else content[:kept])
    with pytest.raises(XspError, match="cut off"):
        convert([path], Options(strict_json=True), format_name="jaeger")


def test_one_run_is_refused_where_there_are_several(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_bytes(leveled_traces())
    with pytest.raises(XspError, match="holds 4 runs"):
        JAEGER.read(path, Options())


def test_values_may_be_typed_or_text() -> None:
    assert [integer(v) for v in (7, "7", "-7", "7.5", True, None, "9" * 19, 1 << 64)] == [
        *(7, 7, -7),
        *[None] * 5,
    ]
    assert [finite(v) for v in (1, "0.5", "nan", "LOW", True, None)] == [1.0, 0.5, None, None, None, None]
    assert [sizes(v) for v in ("[729 1 1]", "[1,2,3]", [4, 5, 6], "[1 2]", None)] == [
        *((729, 1, 1), (1, 2, 3), (4, 5, 6)),
        *(None, None),
    ]
    assert lists_as_json("[[256 64] [] [1]]") == "[[256, 64], [], [1]]"
    assert lists_as_json("[[1, 2]]") == "[[1, 2]]"
    assert lists_as_json([[1, 2], [-3]]) == "[[1, 2], [-3]]"
    assert lists_as_json("float32[1]") is None


def _referring(*parent_ids: int | None) -> list[JaegerSpan]:
    return [
        JaegerSpan(str(i), references=[] if parent is None else [Reference(str(parent))])
        for i, parent in enumerate(parent_ids)
    ]


def test_references_are_followed_and_circles_cut() -> None:
    assert parents(_referring(None, 0, 1))[0] == [-1, 0, 1]
    parent, findings = parents(_referring(1, 2, 0, 2, 9))
    assert parent == [-1, -1, -1, 2, -1]
    assert {f.kind: f.count for f in findings} == {"missing_reference": 1, "reference_cycle": 3}
    assert parents(_referring(0))[0] == [-1]


_host_spans = st.lists(
    st.builds(
        lambda level, start, length: HostSpan(level, start, start + length),
        st.sampled_from([Level.APPLICATION, Level.MODEL, Level.LAYER, Level.LIBRARY, Level.RUNTIME]),
        st.integers(0, 40),
        st.integers(0, 20),
    ),
    max_size=30,
)


@given(_host_spans)
def test_no_two_layers_that_overlap_share_a_lane(spans: Sequence[HostSpan]) -> None:
    lane_of, _ = lanes(spans)
    layers = [(lane, s) for lane, s in zip(lane_of, spans, strict=True) if s.level is Level.LAYER]
    for index, (lane, one) in enumerate(layers):
        for other_lane, other in layers[index + 1 :]:
            both = max(one.start_ns, other.start_ns) < min(one.end_ns, other.end_ns)
            assert lane != other_lane or not both


@given(_host_spans)
def test_lanes_do_not_depend_on_a_shift_in_time(spans: Sequence[HostSpan]) -> None:
    shifted = [HostSpan(s.level, s.start_ns + 7_000_000, s.end_ns + 7_000_000) for s in spans]
    assert lanes(shifted) == lanes(spans)
