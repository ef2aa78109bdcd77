"""Layers of replayed kernels by PyTorch's annotations, whose own tool writes them where torch is at hand.

A step replays KERNELS: gemm 1 000 and bias 300 are annotated as `layers.2.attention.wq`, gemm 1 200 as `layers.10`,
and relu 400 not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.replays import replayed_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.formats.torch_profiler import scan_plain, streamed
from xsp_ingest.formats.torch_profiler.compiled import scanner
from xsp_ingest.ingester import Options
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from xsp_model import Trace

_WQ, _TENTH = "layers.2.attention.wq", "layers.10"
_NODES = {(3 << 32) + 1: [{"str": _WQ}], (3 << 32) + 2: [{"str": _WQ}], (3 << 32) + 3: [{"module_fqn": _TENTH}]}


def _by_hand(document: dict[str, Any]) -> None:
    """As `torch.cuda._annotate_cuda_graph_trace` of torch 2.13 does: fields become arguments, as text."""
    for event in document["traceEvents"]:
        arguments = event.get("args", {})
        for annotation in _NODES.get(arguments.get("graph node id"), ()):
            arguments.update({key: str(value) for key, value in annotation.items()})


def _by_torch(document: dict[str, Any]) -> None:
    module = pytest.importorskip("torch.cuda._annotate_cuda_graph_trace", reason="torch has no such tool")
    assert module.annotate_trace(document, _NODES) == 9


def _written(path: Path, annotate: Callable[[dict[str, Any]], None], trace: KinetoTrace | None = None) -> Path:
    document = json.loads((trace or replayed_run()).to_bytes())
    annotate(document)
    path.write_text(json.dumps(document))
    return path


def _time_by_layer(trace: Trace) -> Mapping[str | None, int]:
    calls = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    work = trace.frame("spans").filter(pl.col("attribution").is_not_null())
    sums = work.join(calls, on="layer_id", how="left").group_by("layer_name").agg(pl.col("duration_ns").sum())
    return dict(sums.iter_rows())


_EXPECTED = {_WQ: 3_900, _TENTH: 3_600, None: 3 * (400 + 200)}


@pytest.mark.parametrize("annotate", [_by_hand, pytest.param(_by_torch, marks=pytest.mark.torch)])
def test_replayed_work_belongs_to_the_layer_that_its_annotation_names(
    tmp_path: Path, annotate: Callable[[dict[str, Any]], None]
) -> None:
    trace = convert([_written(tmp_path / "trace.json", annotate)], Options())
    assert _time_by_layer(trace) == _EXPECTED
    rows = trace.frame("attributions").select("weight", pl.col("basis").cast(pl.String))
    assert rows.height == 9
    assert rows.unique().rows() == [(1.0, "annotation")]
    counts = trace.frame("spans")["attribution"].cast(pl.String).drop_nulls().value_counts().rows()
    assert dict(counts) == {"layer": 9, "graph_replay": 3, "model_only": 3}


def test_layers_have_the_path_and_the_kind_of_their_last_part_in_order_of_their_work(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path / "trace.json", _by_hand)], Options())
    table = run(find("A11"), StepView.of(trace)).table.filter(pl.col("layer_index").is_not_null())
    assert table.select("layer_index", "layer_name", "layer_type", "kernel_duration_ns").rows() == [
        (0, _WQ, "wq", 1_300.0), (1, _TENTH, "layers", 1_200.0)]  # fmt: skip
    assert trace.frame("layers")["path"].cast(pl.String).unique().sort().to_list() == [_TENTH, _WQ]


def test_each_launch_has_a_call_of_its_own_without_a_length(tmp_path: Path) -> None:
    trace = convert([_written(tmp_path / "trace.json", _by_hand)], Options())
    calls = trace.frame("spans").join(trace.frame("layers"), on="span_id").filter(pl.col("layer_name") == _WQ)
    launches = trace.frame("spans").filter(pl.col("name").cast(pl.String) == "cudaGraphLaunch")
    assert calls["start_ns"].to_list() == launches["start_ns"].to_list()
    assert calls["step"].to_list() == [1, 2, 3]
    assert calls["duration_ns"].to_list() == [0, 0, 0]
    assert not calls["is_container"].any()


def test_marks_on_a_small_part_of_the_work_are_ranges(tmp_path: Path) -> None:
    """Operators outside of the graph, with most of the device time, stay the layers."""
    kineto = replayed_run()
    kineto.operator("aten::mm", 400_000, 20_000)
    kineto.launch("big", 401_000, 410_000, 90_000)
    trace = convert([_written(tmp_path / "trace.json", _by_hand, kineto)], Options())
    assert trace.frame("runs")["layer_source"].to_list() == ["operator"]
    assert _time_by_layer(trace)["aten::mm"] == 90_000


def test_nothing_said_of_a_node_is_no_layer(tmp_path: Path) -> None:
    kineto = replayed_run()
    for event, value in zip(
        (e for e in kineto.events if e.get("cat") == "kernel"), ["", " ", None, *"abcdefghi"], strict=True
    ):
        arguments = event["args"]
        assert isinstance(arguments, dict)
        arguments["annotation"] = value
    trace = convert([_written(tmp_path / "trace.json", lambda _: None, kineto)], Options())
    names = trace.frame("layers")["layer_name"].cast(pl.String).to_list()
    assert sorted(names) == list("abcdefghi")


def test_text_of_launched_work_is_no_annotation(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 20_000)
    kineto.launch("gemm", 1_000, 10_000, 5_000)
    arguments = kineto.events[-3]["args"]
    assert isinstance(arguments, dict)
    arguments["str"] = "layers.0"
    trace = convert([_written(tmp_path / "trace.json", lambda _: None, kineto)], Options())
    assert _time_by_layer(trace) == {"aten::mm": 5_000}


@pytest.mark.parametrize(
    ("value", "annotation"),
    [("wq", '"wq"'), ('a \u00e9 "b"', '"a \\u00e9 \\"b\\""'), (["x", 1], '["x", 1]'), (None, "null")],
)
def test_all_scanners_read_the_same(tmp_path: Path, value: object, annotation: str) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    events = [{**event, "args": {"graph node id": 5, key: value}} for key in ("str", "module_fqn", "annotation")]
    events.append({**event, "args": {"annotation": "no", "str": "no", "module_fqn": value}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    with override_limits(compiled_finish_min_bytes=0):
        scanned = [scan_plain.scan(path), *(next(iter(each.documents(path, 100))) for each in (scanner, streamed))]
    for document in scanned:
        assert document.events["annotation"].cast(pl.String).to_list() == [annotation] * 4
