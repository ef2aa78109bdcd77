"""What the original's authors published: systems and batch sizes of one model, layers, accuracies; and broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.linked import ledger_counts
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.export.part import of_system, systems_of
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    import polars as pl

_CASES = Path(__file__).parents[3] / "fixtures/evaluations"


@pytest.fixture(scope="module")
def documents() -> Trace:
    return convert([_CASES / "documents_synthetic"], Options())


def _answer(trace: Trace, analysis: str) -> pl.DataFrame:
    return run(find(analysis), StepView.of(trace)).table


def test_documents_of_one_model_are_read_together(documents: Trace) -> None:
    assert len(systems_of(documents)) == 2
    assert ledger_counts(documents)["several_systems"] == 2
    assert documents.frame("runs").select("model", "framework").unique().sort("framework").rows() == [
        ("Pretend-Net 1.0", "Caffe2 0.8.1"),
        ("Pretend-Net 1.0", "MXNet 0.11.0"),
    ]


def test_a_system_has_a_latency_for_each_batch_size(documents: Trace) -> None:
    table = _answer(of_system(documents, "MXNet"), "A01")
    assert table.select("batch_size", "median_ns").rows() == [(1, 4e6), (2, 5e6), (4, 8e6)]
    assert _answer(of_system(documents, "caffe2"), "A01")["median_ns"].to_list() == [8e6, 10e6, 16e6]


def test_layers_are_of_the_batch_size_that_has_them(documents: Trace) -> None:
    table = _answer(of_system(documents, "MXNet"), "A06").select("layer_type", "latency_ns")
    assert table.rows() == [("Convolution", 2_500_500), ("FullyConnected", 900_000), ("Pooling", 400_000)]


def test_layers_alone_make_no_latency_of_the_model(tmp_path: Path) -> None:
    listed = json.loads((_CASES / "documents_synthetic/layer_tree.json").read_text())
    (tmp_path / "layer_tree.json").write_text(json.dumps([one for one in listed if one["framework_name"] == "MXNet"]))
    trace = convert([tmp_path / "layer_tree.json"], Options())
    assert _answer(trace, "A01")["latency_ns"].drop_nulls().is_empty()
    assert _answer(trace, "A06")["latency_ns"].to_list() == [2_500_500, 900_000, 400_000]


def test_accuracies_stay_with_their_system(documents: Trace) -> None:
    of_one = of_system(documents, "MXNet").frame("accuracies")
    assert of_one.select("metric", "value").rows() == [("top1", 0.5), ("top5", 0.75)]
    assert documents.frame("accuracies").height == 4


def test_the_machines_name_is_kept_on_request_only(documents: Trace) -> None:
    assert not any("a-machine" in name for name in systems_of(documents))
    kept = convert([_CASES / "documents_synthetic"], Options(keep_private=True))
    assert any("amd64 machine a-machine" in name for name in systems_of(kept))


@pytest.mark.parametrize(("text", "says"), [("machine", "2 systems"), ("TensorRT", "no system")])
def test_a_text_that_is_not_of_one_system_is_refused(documents: Trace, text: str, says: str) -> None:
    with pytest.raises(XspError, match=says):
        of_system(documents, text)


def test_benchmarks_are_layers_of_one_step() -> None:
    trace = convert([_CASES / "benchmarks_synthetic"], Options())
    assert _answer(trace, "A01").select("batch_size", "latency_ns").rows() == [(2, 96_000)]
    assert trace.frame("runs")["device_name"].to_list() == ["TITAN V"]
    assert _answer(trace, "A02").select("layer_type", "layer_name").rows() == [
        ("CUDNN_CONV_FWD", "CUDNN_CONV_FWD CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD"),
        ("CUDNN_ADD_TENSOR", "CUDNN_ADD_TENSOR"),
        ("CUBLAS_GEMV_FWD", "CUBLAS_GEMV_FWD"),
    ]


_SOUND = {"machine_architecture": "amd64", "batch_size": 1, "durations": [1.0]}


@pytest.mark.parametrize(
    "odd",
    [
        {"durations": ["soon"]},
        {"durations": [-1]},
        {"durations": 5},
        {"durations": [1e300]},
        {"batch_size": -4},
        {"batch_size": "many"},
        {"layer_informations": [{"name": 5, "durations": [1]}]},
        {"layer_informations": [7]},
        {"top1_accuracy": 40},
    ],
)
def test_a_document_that_cannot_be_used_is_counted(odd: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "documents.json"
    path.write_text(json.dumps([_SOUND, _SOUND | odd, "no object"]))
    trace = convert([path], Options())
    assert ledger_counts(trace)["not_an_event"] == 2
    assert _answer(trace, "A01")["latency_ns"].to_list() == [1_000]


@pytest.mark.parametrize("kept", [30, 60])
def test_a_file_that_is_cut_off_is_refused(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "documents.json"
    path.write_text(json.dumps([_SOUND])[:kept])
    with pytest.raises(XspError):
        convert([path], Options())


def test_a_table_of_latencies_adds_up_the_calls_of_a_layer(tmp_path: Path) -> None:
    content = (_CASES / "latencies_synthetic/PretendNet.csv").read_bytes()
    path = tmp_path / "batchsize_8" / "Tesla_T4" / "PretendNet.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.replace(b"softmax_1,Softmax", b"softmax_1,", 1).replace(b"0.008018", b"N/A"))
    trace = convert([path], Options())
    assert _answer(trace, "A06").select("layer_type", "latency_ns").rows() == [("Conv", 985_412), ("(no type)", 9_145)]
    run_of = trace.frame("runs").row(0, named=True)
    assert (run_of["model"], run_of["batch_size"], run_of["device_name"]) == ("PretendNet", 8, "Tesla T4")
    assert ledger_counts(trace)["not_an_event"] == 1
