"""B21, B22: the parts of a mixture of experts, worked out by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_ALL_TO_ALL = "ncclDevKernel_AllToAllPivot_RING_SIMPLE(ncclDevKernelArgs<4096ul>)"
_TOP_K = "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*)"
_ALIGN = "void vllm::moe::moe_align_block_size_kernel<int>(int const*)"
_PRODUCT = "fused_moe_kernel"
_SILU = "void vllm::act_and_mul_kernel<c10::BFloat16, &(silu_kernel)>(c10::BFloat16*)"
_SUM = "void vllm::moe::moe_sum_kernel<c10::BFloat16, 4>(c10::BFloat16*)"
_GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
_ATTENTION = "void flash_fwd_kernel<64>()"


def _sequence(*work: tuple[str, int]) -> Hand:
    """One kernel after the other, each with its duration."""
    hand, at = Hand(), 0
    hand.run()
    for name, duration in work:
        hand.work(name, at, duration)
        at += duration
    return hand


def _parts(trace: Trace) -> dict[str, int]:
    table = run(find("B21"), StepView.of(trace, "all")).table
    return dict(table.select("part", "duration_ns").rows())


def test_device_time_by_part_in_the_order_of_a_block() -> None:
    block = [(_TOP_K, 3), (_ALIGN, 2), (_PRODUCT, 40), (_SILU, 5), (_PRODUCT, 30), (_SUM, 7)]
    table = run(find("B21"), StepView.of(_sequence((_GEMM, 13), *block).build(), "all")).table
    assert table.select("part", "block_count", "count", "duration_ns").rows() == [
        ("routing", None, 2, 5),
        ("expert products", None, 2, 70),
        ("activation", None, 1, 5),
        ("combine", None, 1, 7),
    ]
    assert table["expert_share"].to_list() == pytest.approx([5 / 87, 70 / 87, 5 / 87, 7 / 87])
    assert table["device_share"].sum() == pytest.approx(87 / 100)


def test_an_activation_outside_of_experts_is_not_theirs() -> None:
    dense = [(_GEMM, 10), (_SILU, 5), (_GEMM, 10)]
    assert _parts(_sequence(*dense, (_PRODUCT, 40), (_SILU, 6), (_GEMM, 10)).build()) == {"expert products": 40}


def test_an_all_to_all_is_what_its_position_says() -> None:
    there = [(_TOP_K, 1), (_ALL_TO_ALL, 10), (_ALL_TO_ALL, 20), (_PRODUCT, 5)]
    back = [(_ALL_TO_ALL, 100), (_ATTENTION, 1)]
    assert _parts(_sequence(*there, *back).build()) == {
        "routing": 1, "dispatch": 30, "expert products": 5, "combine": 100,
    }  # fmt: skip


def test_an_all_to_all_between_two_kernels_that_combine_does() -> None:
    parts = _parts(_sequence((_TOP_K, 1), (_PRODUCT, 5), (_SUM, 2), (_ALL_TO_ALL, 10), (_SUM, 3)).build())
    assert parts["combine"] == 15


@pytest.mark.parametrize(
    "work",
    [
        [(_ATTENTION, 1), (_ALL_TO_ALL, 10), (_ATTENTION, 1), (_PRODUCT, 5)],  # of heads, before attention
        [(_ALL_TO_ALL, 10), (_PRODUCT, 5)],  # no routing before it
        [(_PRODUCT, 3), (_ALL_TO_ALL, 10), (_PRODUCT, 2)],
        [(_TOP_K, 0), (_ALL_TO_ALL, 10), (_TOP_K, 0), (_PRODUCT, 5)],
        [(_PRODUCT, 5), (_GEMM, 1), (_ALL_TO_ALL, 10)],  # another product stands between
        [(_PRODUCT, 5), (_SUM, 1), (_ALL_TO_ALL, 10)],  # all is combined before it
    ],
)
def test_an_all_to_all_whose_position_does_not_tell_is_an_exchange(work: list[tuple[str, int]]) -> None:
    parts = _parts(_sequence(*work).build())
    assert (parts["exchange"], parts["expert products"]) == (10, 5)
    assert "dispatch" not in parts
    assert parts.get("combine", 0) < 10


def test_another_step_or_device_tells_no_position() -> None:
    hand = Hand()
    hand.run()
    hand.work(_TOP_K, 0, 1, step=0)
    hand.work(_ALL_TO_ALL, 10, 10, step=1)
    hand.work(_PRODUCT, 30, 5, step=1)
    hand.work(_TOP_K, 5, 1, step=1, device_id=1)
    assert _parts(hand.build())["exchange"] == 10


def test_kernels_that_say_themselves_which_way_they_send_need_no_position() -> None:
    combine = "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)"
    dispatch = "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)"
    assert _parts(_sequence((combine, 4), (dispatch, 3), (_PRODUCT, 5)).build()) == {
        "dispatch": 3, "expert products": 5, "combine": 4,
    }  # fmt: skip


def _layered() -> Hand:
    """Two blocks as modules name them; the router is a product like any other, and the shared experts' are too."""
    hand = Hand()
    hand.run(0, layer_source="module")
    for number, scale in ((0, 1), (1, 10)):
        block = f"model.layers.{number}.mlp"
        at = 1_000 * number
        for path, name, duration in (
            ("gate", _GEMM, 2),
            ("experts", _TOP_K, 1),
            ("experts", _PRODUCT, 20),
            ("shared_experts.down_proj", _GEMM, 6),
            ("experts", "void at::native::index_elementwise_kernel<128>()", 3),
        ):
            layer = hand.module(f"{block}.{path}", at, 10, at)
            hand.work(name, at, duration * scale, layer=layer)
            at += 100
    for at, path in ((5_000, "model.layers.1.attn.gate"), (5_100, "Model_0.Attention_0.Linear_0")):
        hand.work(_GEMM, at, 1_000, layer=hand.module(path, at, 10, at))
    return hand


def test_modules_tell_what_names_do_not() -> None:
    assert _parts(_layered().build()) == {"routing": 33, "expert products": 220, "shared experts": 66, "other": 33}


def test_each_block_is_a_row_whose_parts_sum_to_it() -> None:
    table = run(find("B22"), StepView.of(_layered().build(), "all")).table
    columns = ["block", "duration_ns", "routing_ns", "products_ns", "shared_ns", "other_ns"]
    assert table.select(columns).rows() == [
        ("model.layers.0.mlp", 32, 3, 20, 6, 3),
        ("model.layers.1.mlp", 320, 30, 200, 60, 30),
    ]
    parts = [c for c in table.columns if c.endswith("_ns") and c != "duration_ns"]
    assert table.select(parts).sum_horizontal().to_list() == table["duration_ns"].to_list()


def test_a_trace_without_experts_is_told_in_one_sentence() -> None:
    for analysis in ("B21", "B22"):
        with pytest.raises(XspError, match="kernels of a mixture of experts"):
            run(find(analysis), StepView.of(paper_trace()))


@pytest.mark.real
def test_the_parts_of_a_served_model_as_counted_by_name(real_dir: Path) -> None:
    """gpt-oss under vLLM: names of its kernels looked up by eye, durations added up from the file itself."""
    path = real_dir / "kineto" / "vllm_prefilldecode_piecewise_graph.mi300.json.gz"
    parts = {
        "_topk_forward": "routing",
        "_sum_bitmatrix_rows": "routing",
        "_combined_routing_memset": "routing",
        "_combined_routing_compute": "routing",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu": "expert products",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1": "expert products",
        "_finalize_matmul_scatter_bf16": "combine",
        "triton_poi_fused_constant_pad_nd_moe_forward_0": "other",
    }
    by_hand: Counter[str] = Counter()
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if event.get("cat") == "kernel" and event["name"] in parts:
            by_hand[parts[event["name"]]] += round(event["dur"] * 1000)
    assert _parts(convert([path], Options())) == by_hand
    assert by_hand == {"routing": 572_941, "expert products": 122_532_263, "combine": 2_353_522, "other": 1_566_326}


def test_work_that_took_no_time_is_no_share_of_anything() -> None:
    table = run(find("B21"), StepView.of(_sequence((_PRODUCT, 0)).build(), "all")).table
    assert table.select("duration_ns", "expert_share", "device_share", "model_share").rows() == [(0, None, None, None)]
