"""Experts, attention of an extend batch and a kernel of Triton: B23 beside what is counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.answers.by_hand import work_facts
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_BF16 = "c10::BFloat16"


def row_of(path: Path, operator: str) -> dict[str, Any]:
    table = run(find("B23"), StepView.of(convert([path], Options()), "all")).table
    [row] = [each for each in table.to_dicts() if each["operator"] == operator]
    return row


def written(path: Path, name: str, shapes: list[list[int]], kinds: list[str], scalars: list[str]) -> Path:
    """A trace of one such call, with a kernel of 10 ms."""
    made = KinetoTrace()
    args = {
        "External id": 1,
        "Input Dims": shapes,
        "Input type": kinds,
        "Input Strides": [[] for _ in shapes],
        "Concrete Inputs": scalars,
    }
    made.span("cpu_op", name, 0, 90_000, args=args)
    made.launch("kernel", 10_000, 200_000, 10_000_000)
    return made.write(path / "trace.json")


@pytest.mark.parametrize(("tokens", "hit"), [(1, 4.0), (32, 31.554), (1000, 32.0)])
def test_weights_of_experts_are_those_of_the_experts_that_tokens_hit(tmp_path: Path, tokens: int, hit: float) -> None:
    shapes = [[tokens, 64], [32, 96, 64], [32, 64, 48], [tokens, 4], [tokens, 4]]
    kinds = [_BF16, _BF16, _BF16, "float", "int"]
    path = written(tmp_path, "vllm::inplace_fused_experts", shapes, kinds, [""] * 5)
    assert work_facts.experts_hit(32, 4, tokens) == pytest.approx(hit, abs=1e-3)
    row = row_of(path, "vllm::inplace_fused_experts")
    assert row["modelled_bytes"] == pytest.approx(work_facts.bytes_of_experts(path), abs=1)


def test_attention_of_an_extend_batch_counts_the_pairs_that_a_causal_mask_keeps(tmp_path: Path) -> None:
    # As SGLang launches it for 15 new requests of 1024 tokens: 36 layers of it are the 4.6 TFLOP of Qwen3-8B.
    shapes = [[15360, 32, 128], [835874, 8, 128], [835874, 8, 128], [16], [16], [15616], *[[]] * 12]
    kinds = [_BF16, _BF16, _BF16, "int", "int", "int", *["Scalar"] * 12]
    scalars = [*[""] * 6, "1024", "1024", "0.", "0.0884", "0.", "False", "True", "-1", "-1", "0", "False", "False"]
    path = written(tmp_path, "aiter::mha_batch_prefill", shapes, kinds, scalars)
    flop = work_facts.flop_of_extend_attention(path)
    assert flop == 128_974_848_000
    assert row_of(path, "aiter::mha_batch_prefill")["modelled_flop"] == flop


def test_a_kernel_of_triton_does_no_more_than_its_operands_have_elements(tmp_path: Path) -> None:
    shapes = [[888], [888], [888], *[[]] * 6]
    kinds = ["int", "long int", "bool", *["Scalar"] * 6]
    scalars = ["", "", "", "0", "25136", "201088", "201088", "0", "888"]
    path = written(tmp_path, "triton_poi_fused_add_bitwise_and_0", shapes, kinds, scalars)
    row = row_of(path, "triton_poi_fused_add_bitwise_and_0")
    assert [row["vector_flop"], row["modelled_bytes"]] == work_facts.work_of_triton_kernel(path) == [888, 888 * 13]
