"""Jaeger export: what Jaeger's UI needs, MLModelScope's tags, and the way back, exact to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.make.jaeger import leveled_traces
from tests.helpers.examples import examples
from tests.helpers.exported import small, with_texts, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from tests.helpers.run_sets import merged, write_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.export import part_of
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

_SAME = ("spans", "layers", "operators", "ranges", "kernels", "copies", "metrics", "devices")
_SERIES_ONLY = (
    "memory_snapshot/",
    "nvml_samples/alone",
    "system_samples/alone",
    "torch_profiler/training_memory_cpu",
)  # a run without spans
_ATTRIBUTED = ("compiled_code/", "torch_trace_log/")  # what a compiler says beside a trace is not in an export
_WITH_SPANS = [case for case in SOUND if not case.name.startswith(_SERIES_ONLY + _ATTRIBUTED)]
_OF_RUN = ("run_id", "rank", "world_size", "profiler", "framework", "model", "batch_size", "layer_source", "epoch_ns")


def _back(trace: Trace, folder: Path) -> Trace:
    return convert([written(trace, "jaeger", folder)], Options())


def _assert_same(before: Trace, after: Trace) -> None:
    for name in _SAME:
        assert with_texts(after.frame(name)).equals(with_texts(before.frame(name))), name
    columns = [*_OF_RUN, "clock_origin_ns"]
    assert after.frame("runs").select(columns).equals(before.frame("runs").select(columns))


def _tags(span: Mapping[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    trace = small(tmp_path)
    _assert_same(trace, _back(trace, tmp_path))


@every(_WITH_SPANS)
def test_every_fixture_comes_back_as_it_was(case: FixtureCase, tmp_path: Path) -> None:
    _assert_same(trace_of(case), _back(trace_of(case), tmp_path))


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["kineto/cuda_graphs.json.gz", "nsys/saxpy_mpi.a100.nsys2022_2.sqlite", "kineto/bert_small.h100.json.gz"]
)
def test_real_traces_come_back_as_they_were(name: str, real_dir: Path, tmp_path: Path) -> None:
    trace = convert([real_dir / name], Options())
    _assert_same(trace, _back(trace, tmp_path))


_events = st.lists(
    st.tuples(
        st.sampled_from(["module", "operator", "annotation", "launch"]),
        st.sampled_from(["A_0", "B_1", "aten::a", "aten::b"]),
        st.integers(0, 30),  # start
        st.integers(0, 20),  # duration
        st.sampled_from([100, 200]),  # thread
    ),
    max_size=25,
    unique_by=lambda event: (event[1], event[2]),  # of two calls of one name at one time the file's order decides
)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(_events)
def test_any_trace_comes_back_however_its_spans_overlap(events: Sequence[tuple[str, str, int, int, int]]) -> None:
    kineto = KinetoTrace()
    kineto.step(1, 0, 25)
    for kind, name, start, duration, thread in events:
        if kind == "launch":
            kineto.launch(name, start, start + duration, duration, thread_id=thread)
        else:
            getattr(kineto, kind)(name, start, duration, thread_id=thread)
    with TemporaryDirectory() as folder:
        trace = convert([kineto.write(Path(folder) / "trace.json")], Options())
        _assert_same(trace, _back(trace, Path(folder)))


def test_an_old_trace_of_mlmodelscope_comes_back_with_its_counters(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(leveled_traces())
    trace = convert([path], Options())
    assert trace.frame("metrics").height > 0
    _assert_same(trace, _back(trace, tmp_path))


def test_metrics_that_are_no_finite_numbers_come_back(tmp_path: Path) -> None:
    trace = small(tmp_path)
    builder = TraceBuilder()
    for name in TABLES:
        builder.add(name, trace.frame(name))
    values = [float("inf"), float("-inf"), float("nan"), 0.1]
    more = pl.DataFrame({"span_id": [0, 3, 4, 5], "value": values}).with_columns(
        metric=pl.lit("odd"), unit=pl.lit("1"), source=pl.lit("test")
    )
    builder.add("metrics", more)
    odd = builder.build()
    _assert_same(odd, _back(odd, tmp_path))


def test_jaeger_finds_what_it_needs(tmp_path: Path) -> None:
    document = json.loads(written(small(tmp_path), "jaeger", tmp_path).read_bytes())
    (trace,) = document["data"]
    ids = {span["spanID"] for span in trace["spans"]}
    assert len(ids) == len(trace["spans"])
    for span in trace["spans"]:
        assert span["traceID"] == trace["traceID"]
        assert len(span["spanID"]) == 16
        assert isinstance(span["startTime"], int)
        assert isinstance(span["duration"], int)
        assert span["processID"] in trace["processes"]
        assert all(r["refType"] == "CHILD_OF" and r["spanID"] in ids for r in span["references"])
        assert all(tag["type"] in {"string", "bool", "int64", "float64"} for tag in span["tags"])
    by_name = {span["operationName"]: span for span in trace["spans"]}
    gemm = by_name["gemm<float>"]
    assert gemm["startTime"] == (1_700_000_000_123_456_789 + 1_000_000_000_000_001 + 150_003) // 1000
    assert gemm["duration"] == 70
    assert _tags(gemm)["duration_ns"] == 70_007
    assert trace["processes"][gemm["processID"]]["serviceName"] == "kernel"


def test_spans_carry_the_tags_that_mlmodelscope_looks_for(tmp_path: Path) -> None:
    (trace,) = json.loads(written(small(tmp_path), "jaeger", tmp_path).read_bytes())["data"]
    tags = {span["operationName"]: _tags(span) for span in trace["spans"]}
    assert tags["ProfilerStep#1"]["trace_level"] == "MODEL_TRACE"
    assert tags["ProfilerStep#1"]["evaluation_trace_level"] == "SYSTEM_LIBRARY_TRACE"
    layer = tags["Linear_0"]
    assert (layer["trace_level"], layer["layer_sequence_index"], layer["op_name"]) == ("FRAMEWORK_TRACE", 0, "Linear")
    gemm = tags["gemm<float>"]
    assert (gemm["grid_dim"], gemm["block_dim"], gemm["kernel_name"]) == ("[4 2 1]", "[128 1 1]", "gemm<float>")
    launches = [t for t in tags.values() if t.get("kernel")]
    assert {t["trace_level"] for t in launches} == {"SYSTEM_LIBRARY_TRACE"}
    assert all("correlation_id" in t for t in launches)


def test_counters_stand_in_the_log_of_the_launch(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(leveled_traces())
    document = json.loads(written(convert([path], Options()), "jaeger", tmp_path).read_bytes())
    logs = {
        field["key"]: field["value"]
        for span in document["data"][3]["spans"]
        if span["operationName"] == "cudaLaunchKernel"
        and _tags(span)["step"] == 0
        and _tags(span)["correlation_id"] == 101
        for log in span["logs"]
        for field in log["fields"]
    }
    assert (logs["flop_count_sp"], logs["achieved_occupancy"]) == (62e9, 0.132)


def test_a_part_can_be_read_back_too(tmp_path: Path) -> None:
    part = part_of(small(tmp_path), step=1)
    after = _back(part, tmp_path)
    columns = ["name", "level", "kind", "start_ns", "duration_ns", "step"]
    shift = part.frame("spans")["start_ns"][0]
    before = with_texts(part.frame("spans")).select(columns).with_columns(pl.col("start_ns") - shift)
    assert with_texts(after.frame("spans")).select(columns).equals(before)


def test_work_whose_launch_is_left_out_keeps_its_place(tmp_path: Path) -> None:
    after = _back(part_of(small(tmp_path), levels=["model", "layer", "kernel"]), tmp_path)
    spans = with_texts(after.frame("spans"))
    names = spans["name"].to_list()
    parents = {row["name"]: None if row["parent_id"] is None else names[row["parent_id"]] for row in spans.to_dicts()}
    assert parents["gemm<float>"] == "Linear_0"


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = small(tmp_path)
    first = written(trace, "jaeger", tmp_path).read_bytes()
    assert written(trace, "jaeger", tmp_path).read_bytes() == first


def test_a_profile_comes_back_with_what_each_run_is_taken_for(tmp_path: Path) -> None:
    for level in ("ML", "MLG"):
        trace = KinetoTrace()
        trace.step(1, 0, 100_000)
        trace.module("Linear_0", 1_000, 90_000)
        trace.operator("aten::linear", 2_000, 80_000)
        if level == "MLG":
            trace.launch("gemm", 20_000, 30_000, 40_000)
        write_run(tmp_path / "set" / level, level, trace, batch_size=8, serialized=True, device={"name": "GPU"})
    profile = merged(tmp_path / "set")
    back = _back(profile, tmp_path)
    facts = ["role", "serialised"]
    assert back.frame("runs").select(facts).rows() == [("layers", True), ("kernels", True)]
    latency = [run(find("A15"), StepView.of(each)).table["model_latency_ns"].to_list() for each in (profile, back)]
    assert latency[0] == latency[1] == [100_000.0]
