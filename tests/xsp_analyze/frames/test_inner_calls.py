"""Calls whose work is told by inputs of the operators inside them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.operators.operator_calls import call_kinds
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_BF16 = "c10::BFloat16"


def _operator(
    made: KinetoTrace, name: str, start: int, duration: int, *, concrete: list[str], **columns: object
) -> None:
    made.operator(name, start, duration)
    made.events[-1]["args"] |= {  # type: ignore[operator]
        "Input Dims": columns["shapes"],
        "Input type": columns["kinds"],
        "Concrete Inputs": concrete,
    }


def test_each_block_of_experts_counts_by_the_matrices_inside_it(tmp_path: Path) -> None:
    # Two blocks of 8 experts for 46 tokens of 64: of the first each token takes 2, of the second 3.
    made = KinetoTrace()
    for number, k in enumerate(("2", "3")):
        at = number * 100_000
        shapes: list[list[int]] = [[46, 64], [46, 8], []]
        _operator(made, "vllm::moe_forward", at, 90_000, shapes=shapes, kinds=[_BF16, _BF16, ""], concrete=["", "", ""])
        _operator(made, "TopK", at + 1000, 1000, shapes=[[46, 8], []], kinds=[_BF16, "Scalar"], concrete=["", k])
        for number_inside, shape in enumerate(([8, 64, 96], [8, 48, 64], [8, 64, 96])):
            start = at + 3000 + 2000 * number_inside
            _operator(
                made, "aten::view", start, 1000, shapes=[shape, []], kinds=[_BF16, "ScalarList"], concrete=["", ""]
            )
        made.launch("_matmul_ogs", at + 20_000, 300_000 + at, 10_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    calls = call_kinds(StepView.of(trace).of_trace)
    blocks = calls.kinds["name"].gather(calls.kind_of) == "vllm::moe_forward"
    flop = calls.kinds["flop"].gather(calls.kind_of).filter(blocks).to_list()
    assert flop == [2 * 46 * k * (64 * 96 + 48 * 64) for k in (2, 3)]
    row = run(find("B11"), StepView.of(trace)).table.row(0, named=True)
    assert (row["operator"], row["modelled_flop"], row["modelled_share"]) == ("vllm::moe_forward", sum(flop), 1.0)


@pytest.mark.real
def test_real_blocks_of_experts_count_as_their_weights_say(real_dir: Path) -> None:
    # 32 experts, 4 a token; 4-bit weights of 3072 to 2 * 2944 and of 2944 to 3072, of a vLLM server's largest batch.
    path = real_dir / "kineto" / "graph_pairs" / "vllm_piecewise.mi300.capture.json.gz"
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    blocks = [e["args"]["Input Dims"][0] for e in events if e.get("name") == "vllm::moe_forward"]
    calls = call_kinds(StepView.of(convert([path], Options())).of_trace)
    of_blocks = calls.kinds["name"].gather(calls.kind_of) == "vllm::moe_forward"
    flop = calls.kinds["flop"].gather(calls.kind_of).filter(of_blocks)
    assert flop.to_list() == [2 * tokens * 4 * (3072 * 5888 + 2944 * 3072) for tokens, _ in blocks]
