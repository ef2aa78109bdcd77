"""Real replays and their captures: held to independent totals, and against captures that were spoilt."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from xsp_model import Trace

pytestmark = pytest.mark.real

VLLM = ("vllm_prefilldecode_piecewise_graph.mi300", "graph_pairs/vllm_piecewise.mi300.capture")
XDIT = ("graph_pairs/xdit_flux.mi300.replay", "graph_pairs/xdit_flux.mi300.capture")
PAIRS = {"vllm_piecewise": VLLM, "xdit_flux": XDIT}


def _path(real_dir: Path, name: str) -> Path:
    return real_dir / f"kineto/{name}.json.gz"


def _paired(real_dir: Path, replay: str, capture: Path) -> Trace:
    return convert([_path(real_dir, replay)], Options(graph_captures=[capture]))


def _replayed(trace: Trace) -> pl.DataFrame:
    """Work of graph launches: start, duration, whether it has a layer, and where it was captured."""
    spans = trace.frame("spans").with_columns(pl.col("name", "level", "attribution").cast(pl.String))
    launches = spans.filter(pl.col("name") == "hipGraphLaunch")["span_id"]
    work = spans.filter(pl.col("parent_id").is_in(launches.implode()), pl.col("level") == "kernel")
    nodes = trace.frame("kernels").select("span_id", "captured_in_id")
    joined = work.join(nodes, on="span_id", how="left", maintain_order="left")
    return joined.select("parent_id", "duration_ns", pl.col("attribution") == "layer", "captured_in_id", "layer_id")


@pytest.mark.parametrize("name", PAIRS)
def test_module_totals_are_those_of_an_independent_program(name: str, real_dir: Path) -> None:
    expected = json.loads((real_dir / f"reference/graph_capture/{name}.mi300.json").read_text())
    replay, capture = PAIRS[name]
    trace = _paired(real_dir, replay, _path(real_dir, capture))
    work = _replayed(trace)
    assert (work.height, work["duration_ns"].sum()) == (expected["replayed"], expected["replayed_ns"])
    assert work["attribution"].sum() == expected["matched"] == work.height
    spans = trace.frame("spans").with_columns(pl.col("name", "kind").cast(pl.String))
    is_module, names = (spans["kind"] == "module").to_numpy(), spans["name"].to_list()
    duration, at = work["duration_ns"].to_numpy(), work["captured_in_id"].to_numpy()
    around: list[set[str]] = [set() for _ in at]
    own: dict[str, int] = {}
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    while (at >= 0).any():
        at = np.where(at >= 0, parent[at], -1)
        for piece, module in enumerate(at):
            if module >= 0 and is_module[module]:
                label = names[module].removeprefix("nn.Module: ")
                if not around[piece]:
                    own[label] = own.get(label, 0) + int(duration[piece])
                around[piece].add(label)
    inclusive: dict[str, int] = {}
    for labels, length in zip(around, duration.tolist(), strict=True):
        for label in labels:
            inclusive[label] = inclusive.get(label, 0) + length
    assert inclusive == expected["modules_inclusive"]
    assert own == expected["modules_self"]


def _document(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        document: dict[str, Any] = json.load(file)
    return document


def _launches(document: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Events of the launches of each captured graph, in order, by nothing of ours."""
    calls = [e for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"]
    graphs: list[list[dict[str, Any]]] = []
    inside = False
    for call in sorted(calls, key=lambda e: e["ts"]):
        if call["name"] == "hipStreamBeginCapture":
            graphs.append([])
            inside = True
        elif call["name"] == "hipStreamEndCapture":
            inside = False
        elif inside and "LaunchKernel" in call["name"]:
            graphs[-1].append(call)
    return graphs


def test_operators_of_replayed_kernels_are_those_around_their_launches(real_dir: Path) -> None:
    """B11 counts the outermost operator whose work a model tells: of one norm that is the operator inside."""
    capture, replay = (_document(_path(real_dir, name)) for name in reversed(VLLM))
    operators = [e for e in capture["traceEvents"] if e.get("cat") == "cpu_op"]
    work: dict[int, list[dict[str, Any]]] = {}
    for event in replay["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            work.setdefault(event["args"].get("correlation"), []).append(event)
    replays = [e for e in replay["traceEvents"] if e.get("name") == "hipGraphLaunch"]
    device: dict[str, int] = {}
    calls: dict[str, set[float]] = {}
    for launch, graph in zip(sorted(replays, key=lambda e: e["ts"]), _launches(capture), strict=True):
        kernels = sorted(work[launch["args"]["correlation"]], key=lambda e: e["ts"])
        assert [k["name"] for k in kernels] == [c["args"]["kernel"] for c in graph]
        for kernel, call in zip(kernels, graph, strict=True):
            around = [e for e in operators if e["tid"] == call["tid"] and e["ts"] <= call["ts"] <= e["ts"] + e["dur"]]
            around.sort(key=lambda e: -e["dur"])
            unit = next(
                (e for e in around if e["name"] in {"aiter::rms_norm", "vllm::rocm_unquantized_gemm"}), around[0]
            )
            device[unit["name"]] = device.get(unit["name"], 0) + round(kernel["dur"] * 1000)
            calls.setdefault(unit["name"], set()).add(unit["ts"])
    assert device["vllm::moe_forward"] == 125_458_726
    trace = _paired(real_dir, VLLM[0], _path(real_dir, VLLM[1]))
    rows = run(find("B11"), StepView.of(trace)).table.select("operator", "count", "device_sum_ns").rows()
    answered = {name: (count, time) for name, count, time in rows}
    eager = {"vllm::rocm_unquantized_gemm": (1, 346_637)}  # that of the logits, outside of every graph
    for name, time in device.items():
        more = eager.get(name, (0, 0))
        assert answered[name] == (len(calls[name]) + more[0], time + more[1])


def _written(document: dict[str, Any], folder: Path) -> Path:
    path = folder / "capture.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(("replay", "capture"), [(VLLM[0], XDIT[1]), (XDIT[0], VLLM[1])])
def test_the_capture_of_another_model_gives_nothing(replay: str, capture: str, real_dir: Path) -> None:
    trace = _paired(real_dir, replay, _path(real_dir, capture))
    work = _replayed(trace)
    assert not work["attribution"].any()
    refused = trace.frame("ledger").filter(pl.col("kind") == "graph_not_captured").row(0, named=True)
    assert (refused["count"], refused["duration_ns"]) == (work["parent_id"].n_unique(), work["duration_ns"].sum())


def _without_one(graph: list[dict[str, Any]], document: dict[str, Any]) -> None:
    document["traceEvents"].remove(graph[7])


def _with_two_swapped(graph: list[dict[str, Any]], _: dict[str, Any]) -> None:
    one, two = next((a, b) for a, b in pairwise(graph) if a["args"]["kernel"] != b["args"]["kernel"])
    one["args"]["kernel"], two["args"]["kernel"] = two["args"]["kernel"], one["args"]["kernel"]


@pytest.mark.parametrize("spoil", [_without_one, _with_two_swapped])
def test_a_spoilt_graph_leaves_exactly_its_own_replays_open(
    spoil: Callable[[list[dict[str, Any]], dict[str, Any]], None], real_dir: Path, tmp_path: Path
) -> None:
    """The last piece, whose kernels no other piece has, so that the order of the others is still a round."""
    document = _document(_path(real_dir, VLLM[1]))
    graphs = _launches(document)
    sequences = [[e["args"]["kernel"] for e in graph] for graph in graphs]
    spoilt = next(n for n, graph in enumerate(graphs) if sequences.count(sequences[n]) == 1 and len(graph) > 8)
    spoil(graphs[spoilt], document)
    trace = _paired(real_dir, VLLM[0], _written(document, tmp_path))
    by_replay = _replayed(trace).group_by("parent_id", maintain_order=True).agg(
        pl.col("attribution").all(), pl.len(), pl.col("duration_ns").sum()
    )  # fmt: skip
    assert by_replay.height == len(graphs)
    left_open = by_replay.filter(~pl.col("attribution"))
    assert left_open["len"].to_list() == [len(sequences[spoilt])]
    refused = trace.frame("ledger").filter(pl.col("kind") == "graph_not_captured").row(0, named=True)
    assert (refused["count"], refused["duration_ns"]) == (1, left_open["duration_ns"].sum())


def test_the_capture_of_another_batch_is_refused(real_dir: Path, tmp_path: Path) -> None:
    document = _document(_path(real_dir, VLLM[1]))
    for event in document["traceEvents"]:
        if event.get("name") == "capture_8192_PIECEWISE":
            event["name"] = "capture_4096_PIECEWISE"
    trace = _paired(real_dir, VLLM[0], _written(document, tmp_path))
    assert not _replayed(trace)["attribution"].any()
    refused = trace.frame("ledger").filter(pl.col("kind") == "graph_not_captured")
    assert refused["count"].sum() == 25


def test_of_several_captures_the_right_one_is_taken(real_dir: Path) -> None:
    captures = [_path(real_dir, name) for name in (XDIT[1], VLLM[1])]
    for replay in (VLLM[0], XDIT[0]):
        trace = convert([_path(real_dir, replay)], Options(graph_captures=captures))
        assert _replayed(trace)["attribution"].all()
