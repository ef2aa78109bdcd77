"""What a trace of its kind could tell more, and what is to be recorded for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.findings.recording import Recording, recordings
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _trace(*works: tuple[str, int, str], ranges: tuple[str, ...] = (), **run: Any) -> Trace:  # noqa: ANN401
    """Device work, one after the other: name, duration, attribution."""
    hand = Hand()
    hand.run(0, **{"source_path": "hand.json", "format": "torch_profiler", "layer_source": "module", **run})
    start = 0
    for name, duration, attribution in works:
        hand.work(name, start, duration, launch=start, attribution=attribution)
        start += duration
    for number, name in enumerate(ranges):
        hand.span("application", "range", name, number * 10, 10)
    return hand.build()


def _topics(trace: Trace, *captures: str) -> dict[str, Recording]:
    return {one.topic: one for one in recordings(trace, captures)}


def test_a_trace_that_lacks_nothing_is_told_nothing() -> None:
    assert recordings(_trace(("gemm", 100, "model_only"))) == []


def test_replays_without_layers_ask_for_their_capture() -> None:
    one = _topics(_trace(("gemm", 75, "graph_replay"), ("add", 25, "model_only")))["graph replays"]
    assert one.state == "75.0\u202f% of device time is replays of graphs without layers"
    assert "--graph-capture PATH" in one.do
    assert "torch.profiler" in one.do


@pytest.mark.parametrize(
    ("work", "flag"),
    [("void vllm::rms_norm_kernel", "capture_torch_profiler"), ("sgl_kernel::rope", "SGLANG_GRAPH_BATCH_CAPTURE=1")],
)
def test_the_capture_is_asked_for_in_the_words_of_the_engine(work: str, flag: str) -> None:
    assert flag in _topics(_trace((work, 75, "graph_replay")))["graph replays"].do


def test_nsight_systems_records_nodes_instead() -> None:
    one = _topics(_trace(("gemm", 75, "graph_replay"), format="nsys_sqlite"))["graph replays"]
    assert "--cuda-graph-trace=node" in one.do


def test_captures_beside_the_trace_are_named() -> None:
    one = _topics(_trace(("gemm", 75, "graph_replay")), "a/capture_traces", "a/more_captures")["graph replays"]
    assert one.do == (
        "Give the capture that lies beside the trace: --graph-capture a/capture_traces --graph-capture a/more_captures"
    )


def test_captures_beside_a_trace_without_replays_are_not() -> None:
    assert recordings(_trace(("gemm", 75, "model_only")), ["capture_traces"]) == []


@pytest.mark.parametrize(
    ("lines", "is_left_out", "state", "do"),
    [
        (["a.py:1 f", None], True, "those that called 1 of 2 operators", ""),
        ([None, None], True, "none, though frames of Python were recorded", "--frames lines"),
        ([None, None], False, "none", "with_stack=True"),
    ],
)
def test_lines_of_python_ask_for_stacks(lines: list[str | None], is_left_out: bool, state: str, do: str) -> None:  # noqa: FBT001
    hand = Hand()
    hand.run(0, source_path="hand.json", format="torch_profiler")
    for number, line in enumerate(lines):
        span_id = hand.span("operator", "operator", "aten::mm", number * 10, 5)
        hand.extra.setdefault("operators", []).append({"span_id": span_id, "source_lines": line})
    if is_left_out:
        finding = {"kind": "python_frames_left_out", "severity": "info", "count": 7, "detail": "", "advice": ""}
        hand.extra.setdefault("ledger", []).append(finding)
    one = _topics(hand.build())["Python lines"]
    assert one.state == state
    assert do in one.do


def test_generated_kernels_ask_for_what_they_are_made_of() -> None:
    one = _topics(_trace(("triton_poi_fused_add_3", 30, "model_only"), ("gemm", 70, "model_only")))["compiled code"]
    assert one.state == "30.0\u202f% of device time is kernels that Inductor generated, of layers that it does not name"
    assert "compiled_code.json" in one.do


def test_generated_kernels_of_known_layers_ask_for_nothing() -> None:
    hand = Hand()
    hand.run(0, source_path="hand.json", layer_source="module")
    layer = hand.module("Net_0", 0, 50, 0)
    kernel = hand.work("triton_poi_fused_add_3", 10, 30, launch=5, layer=layer)
    hand.extra["attributions"] = [
        {"span_id": kernel, "layer_id": layer, "weight": 1.0, "basis": "compiled_code"},
    ]
    assert recordings(hand.build()) == []


def test_compiled_graphs_on_the_host_alone_ask_too() -> None:
    one = _topics(_trace(ranges=("## Call CompiledFxGraph fa ##", "## Call CompiledFxGraph fb ##")))["compiled code"]
    assert one.state == "2 compiled graphs are called, of which no layer is known"


def test_steps_of_serving_are_counted_by_phase() -> None:
    names = ("execute_context_1(64)_generation_0(0)", *("execute_context_0(0)_generation_8(8)",) * 2)
    one = _topics(_trace(("gemm", 10, "model_only"), ranges=names))["serving"]
    assert one.state == "steps named by vLLM: 2 decode, 1 prefill"
    assert "detailed_trace_annotation" in one.do


def test_an_engine_without_named_steps_says_how_to_get_them() -> None:
    one = _topics(_trace(("void sgl_kernel::rope", 10, "model_only")))["serving"]
    assert one.state == "kernels of SGLang, whose steps have no names"
    assert "/start_profile" in one.do


def test_an_engine_under_nsight_systems_without_modules_is_told_of_layerwise_ranges() -> None:
    work = ("void vllm::rms_norm_kernel", 10, "model_only")
    assert (
        "--enable-layerwise-nvtx-tracing"
        in _topics(_trace(work, format="nsys_sqlite", layer_source="range"))["layers"].do
    )
    assert "layers" not in _topics(_trace(work, format="nsys_sqlite", layer_source="module"))
    assert "layers" not in _topics(_trace(work, layer_source="range"))


def test_experts_of_one_rank_ask_for_the_others() -> None:
    one = _topics(_trace(("fused_moe_kernel", 40, "model_only"), ("gemm", 60, "model_only")))["experts"]
    assert one.state == "a mixture of experts: 40.0\u202f% of device time in kernels named so (B21)"
    assert "xsp batch FOLDER" in one.do


@pytest.mark.real
def test_a_real_trace_of_vllm(real_dir: Path) -> None:
    path = real_dir / "kineto/vllm_prefilldecode_piecewise_graph.mi300.json.gz"
    topics = _topics(convert([path], Options()))
    # 149.920 of 156.086 ms have the correlation of a hipGraphLaunch; one annotation, with prompts and decoding requests
    assert topics["graph replays"].state.startswith("96.0\u202f%")
    assert topics["serving"] == Recording("serving", "steps named by vLLM: 1 mixed")
