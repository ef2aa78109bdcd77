"""A capture given beside a trace tells where work belongs, and adds nothing to what is counted or drawn."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.graph_pairs import Piece, add_capture, add_eager, add_replay, paired
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import run
from xsp_analyze.export.registry import Exporter, find
from xsp_analyze.frames.coverage import provenance
from xsp_analyze.service import summarise
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

GRAPH = (
    Piece("gemm", "Linear_0", "aten::mm", ((4, 8), (8, 2))),
    Piece("relu", "ReLU_0", "aten::relu", ((4, 2),)),
    Piece("softmax", "Softmax_0", "aten::softmax", ((4, 2),)),
)
OF_LAYERS = {"A02", "A03", "A04", "A05", "A06", "A07", "A08", "A11", "A13", "A14", "B01", "B05", "B06", "B10", "B11"}
OF_LAYERS |= {"B17", "B18", "B39", "B41", "B42", "B49"}  # classes look at the operator, too
OF_LAYERS |= {"A09", "A12", "A15", "B23", "B24"}  # the capture tells shapes, and so work


@pytest.fixture(name="pair", scope="module")
def pair_of_traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """The same replays without and with their capture: a step with a layer of its own and two replays."""
    folder = tmp_path_factory.mktemp("pair")
    capture = KinetoTrace()
    end = add_capture(capture, GRAPH, 5_000_000, annotation="capture_8_FULL")
    capture.annotation("after", end, 9_000)
    replay = KinetoTrace()
    replay.step(0, 900_000_000, 300_000)
    now = add_eager(replay, [Piece("embed", "Embedding_0", "aten::embedding")], 900_010_000)
    for _ in range(2):
        now = add_replay(replay, [piece.kernel for piece in GRAPH], now, annotation="replay")
    plain = convert([replay.write(folder / "replay.json")], Options())
    return plain, paired(replay, [capture], folder)


def _answer(trace: Trace, identity: str) -> pl.DataFrame | str:
    one = next(each for each in all_analyses() if each.id == identity)
    try:
        return run(one, StepView.of(trace)).table
    except XspError as error:
        return str(error)


@pytest.mark.parametrize("identity", [each.id for each in all_analyses() if each.id not in OF_LAYERS])
def test_what_does_not_speak_of_layers_is_the_same(identity: str, pair: tuple[Trace, Trace]) -> None:
    without, with_capture = (_answer(trace, identity) for trace in pair)
    if isinstance(without, str) or isinstance(with_capture, str):
        assert without == with_capture
    else:
        assert without.equals(with_capture)


def test_captures_are_runs_that_no_time_is_taken_from(pair: tuple[Trace, Trace]) -> None:
    assert [capture_runs(trace) for trace in pair] == [[], [1]]
    assert timed_runs(pair[1])["run_id"].to_list() == [0]
    assert StepView.of(pair[1]).of_trace.extents["run_id"].to_list() == [0]


def test_the_provenance_counts_the_run_alone(pair: tuple[Trace, Trace]) -> None:
    assert [provenance(StepView.of(trace))["run_count"] for trace in pair] == [1, 1]
    sources = [provenance(StepView.of(trace))["sources"] for trace in pair]
    assert [len(each) for each in sources if isinstance(each, list)] == [1, 2]


def test_the_summary_counts_the_run_alone(pair: tuple[Trace, Trace]) -> None:
    plain, summary = (summarise(trace) for trace in pair)
    assert summary.counts == plain.counts
    assert (summary.window_ns, summary.steps, summary.devices) == (plain.window_ns, plain.steps, plain.devices)
    assert (plain.layer_count, summary.layer_count) == (1, 4)  # replayed ones are of the trace
    assert (plain.layer_call_count, summary.layer_call_count) == (1, 1)
    assert summary.coverage == 1.0


def test_layers_that_were_only_replayed_are_answered(pair: tuple[Trace, Trace], tmp_path: Path) -> None:
    capture, replay = KinetoTrace(), KinetoTrace()
    add_capture(capture, GRAPH, 5_000_000)
    now = add_replay(replay, ["gemm", "relu", "softmax"], 900_000_000)
    add_replay(replay, ["gemm", "relu", "softmax"], now)
    table = _answer(paired(replay, [capture], tmp_path), "A02")
    assert isinstance(table, pl.DataFrame)
    rows = table.select("layer_index", "layer_name", "shapes", "call_count", "latency_ns").rows()
    assert rows == [
        (0, "Linear_0", "[[4, 8], [8, 2]]", 2, 2_000),
        (1, "ReLU_0", "[[4, 2]]", 2, 4_000),
        (2, "Softmax_0", "[[4, 2]]", 2, 6_000),
    ]
    assert summarise(pair[1]).layer_count == 4


def _exported(trace: Trace, name: str) -> Any:  # noqa: ANN401 (a document)
    file = io.BytesIO()
    exporter = find(name)
    assert isinstance(exporter, Exporter)
    exporter.write(trace, file)
    return json.loads(file.getvalue())


def test_chrome_draws_no_capture_but_names_the_layers(pair: tuple[Trace, Trace]) -> None:
    plain, drawn = (_exported(trace, "chrome")["traceEvents"] for trace in pair)
    assert [e["name"] for e in drawn] == [e["name"] for e in plain]
    assert [e["args"] for e in drawn if e["ph"] == "M"] == [e["args"] for e in plain if e["ph"] == "M"]
    layers = [e["args"].get("layer") for e in drawn if e["name"] in ("gemm", "relu", "softmax")]
    assert layers == ["Linear_0", "ReLU_0", "Softmax_0"] * 2


def test_speedscope_draws_no_capture_but_stacks_by_layer(pair: tuple[Trace, Trace]) -> None:
    plain, drawn = (_exported(trace, "speedscope") for trace in pair)
    threads = [[p["name"] for p in document["profiles"] if p["type"] == "evented"] for document in (plain, drawn)]
    assert threads[0] == threads[1]
    assert drawn["name"] == plain["name"]
    names = [frame["name"] for frame in drawn["shared"]["frames"]]
    sampled = next(p for p in drawn["profiles"] if p["type"] == "sampled")
    assert sum(sampled["weights"]) == 13_000
    assert any("Linear_0" in names[frame] for stack in sampled["samples"] for frame in stack)
