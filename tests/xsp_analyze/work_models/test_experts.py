"""Mixture of experts: products of the experts chosen, routing, and what is not recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.helpers.modelled_call import BF16, work
from xsp_analyze.work_models.call import call_of
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from xsp_analyze.work_models.call import ModelledWork

_SHAPES: list[list[int]] = [[46, 64], [8, 96, 64], [8, 64, 48], [46, 2], [46, 2]]
_TYPES = [BF16, BF16, BF16, "float", "int"]


@pytest.mark.parametrize("name", ["vllm::inplace_fused_experts", "sglang::outplace_fused_experts", "aiter::fused_moe_"])
def test_each_token_goes_through_its_experts(name: str) -> None:
    # 46 tokens, 2 of 8 experts each: 92 rows of 64 to 2 * 48 (gate and up), and of 48 to 64.
    counted = work(name, _SHAPES, _TYPES)
    assert counted is not None
    assert counted.flop == 2 * 92 * (64 * 96 + 48 * 64) == 2 * 46 * 2 * 3 * 64 * 48
    one_expert = 2 * (96 * 64 + 64 * 48)
    assert counted.read_bytes == 2 * 46 * 64 + 8 * one_expert + 4 * 92  # 46 tokens leave out none of eight
    assert counted.written_bytes == 2 * 46 * 64


def test_weights_are_those_of_the_experts_that_tokens_are_expected_to_hit() -> None:
    # 32 tokens, 4 of 32 experts each: all but (28 / 32) ** 32 of them, 31.55. Two tokens: 4 + 4 less 4 * 4 / 32 shared.
    each = 2 * (96 * 64 + 64 * 48)
    for tokens, experts in ((32, 31.5539), (2, 7.5)):
        shapes = [[tokens, 64], [32, 96, 64], [32, 64, 48], [tokens, 4], [tokens, 4]]
        counted = work("vllm::inplace_fused_experts", shapes, _TYPES)
        assert counted is not None
        assert counted.read_bytes is not None
        weights = counted.read_bytes - 2 * tokens * 64 - 4 * tokens * 4
        assert weights / each == pytest.approx(experts, rel=1e-5)


def test_an_activation_without_gate_has_half_the_first_product() -> None:
    shapes = [[46, 64], [8, 48, 64], [8, 64, 48], [46, 2], [46, 2]]
    counted = work("vllm::inplace_fused_experts", shapes, _TYPES)
    assert counted is not None
    assert counted.flop == 2 * 92 * (64 * 48 + 48 * 64)


def test_weights_of_four_bits_lie_two_in_a_byte() -> None:
    shapes = [[46, 64], [8, 96, 32], [8, 64, 24], [46, 2], [46, 2]]
    counted = work("vllm::inplace_fused_experts", shapes, [BF16, "unsigned char", "unsigned char", "float", "int"])
    assert counted is not None
    assert counted.flop == 2 * 92 * (64 * 96 + 48 * 64)
    assert counted.read_bytes == 2 * 46 * 64 + 8 * (96 * 32 + 64 * 24) + 4 * 92
    assert counted.precision is None


def test_weights_of_fp8_are_multiplied_in_it() -> None:
    kinds = [BF16, "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "int"]
    counted = work("vllm::inplace_fused_experts", _SHAPES, kinds)
    assert counted is not None
    assert counted.precision == "fp8"


def test_a_single_token_reads_its_own_experts_alone_and_none_reads_none() -> None:
    one = work("vllm::inplace_fused_experts", [[1, 64], *_SHAPES[1:3], [1, 2], [1, 2]], _TYPES)
    none = work("vllm::inplace_fused_experts", [[0, 64], *_SHAPES[1:3], [0, 2], [0, 2]], _TYPES)
    assert one is not None
    assert none is not None
    assert one.read_bytes == 2 * 64 + 2 * 2 * (96 * 64 + 64 * 48) + 4 * 2
    assert (none.flop, none.read_bytes, none.written_bytes) == (0, 0, 0)


def test_experts_on_other_devices_leave_open_how_many_tokens_come_here() -> None:
    assert work("vllm::inplace_fused_experts", [*_SHAPES, [16]], [*_TYPES, "int"]) is None
    assert work("vllm::inplace_fused_experts", [*_SHAPES, [8]], [*_TYPES, "float"]) is not None  # scales are no map


def test_shapes_that_do_not_fit_are_not_known() -> None:
    for shapes in (
        [[46, 60], *_SHAPES[1:]],
        [_SHAPES[0], [8, 90, 64], *_SHAPES[2:]],
        [*_SHAPES[:4], [45, 2]],
        [_SHAPES[0], [96, 64], *_SHAPES[2:]],
    ):
        assert work("vllm::inplace_fused_experts", shapes, _TYPES) is None


def moe_forward(*inner: tuple[str, object, object, object]) -> ModelledWork | None:
    """Of 46 tokens of 64 (which are padded to 64) and 8 experts, with these operators inside: name, inputs, types."""
    calls = [call_of(name, *map(json.dumps, (shapes, kinds, [], concrete))) for name, shapes, kinds, concrete in inner]
    outer = call_of("vllm::moe_forward", json.dumps([[46, 64], [46, 8], []]), json.dumps([BF16, BF16, ""]))
    model = shipped_models().of("vllm::moe_forward")
    assert outer is not None
    assert model is not None
    return model.work(replace(outer, inner_calls=[call for call in calls if call]))


_TOPK = ("TopK", [[46, 8], []], [BF16, "Scalar"], ["", "2"])


def _weights(shape: list[int], kind: str) -> tuple[str, object, object, object]:
    return ("aten::view", [shape, []], [kind, "ScalarList"], ["", ""])


def test_the_experts_of_a_block_are_told_by_the_operators_inside() -> None:
    # 46 tokens, 2 of 8 experts: 92 rows of 64 to 2 * 48, and of 48 to 64. Two weights of four bits in a byte.
    rows = ("aten::view", [[1, 92, 48], []], [BF16, "ScalarList"], ["", ""])
    up, down = _weights([8, 32, 96], "unsigned char"), _weights([8, 24, 64], "unsigned char")
    counted = moe_forward(_TOPK, rows, up, down)
    assert counted is not None
    assert counted.flop == 2 * 92 * (64 * 96 + 48 * 64)
    assert counted.read_bytes == 2 * (46 * 64 + 46 * 8) + 8 * (32 * 96 + 24 * 64)
    assert (counted.written_bytes, counted.vector_flop) == (2 * 46 * 64, 46 * 8 + 92 * 64)
    assert moe_forward(_TOPK, down, rows, up) == counted


def test_experts_of_whole_bytes_and_without_gate_are_told_too() -> None:
    gated = moe_forward(_TOPK, _weights([8, 64, 96], BF16), _weights([8, 48, 64], BF16))
    plain = moe_forward(_TOPK, _weights([8, 64, 48], "signed char"), _weights([8, 48, 64], "signed char"))
    assert gated is not None
    assert plain is not None
    assert gated.flop == 2 * 92 * (64 * 96 + 48 * 64)
    assert plain.flop == 2 * 92 * (64 * 48 + 48 * 64)


def test_a_block_whose_experts_or_choice_are_not_recorded_is_not_known() -> None:
    up, down = _weights([8, 64, 96], BF16), _weights([8, 48, 64], BF16)
    assert moe_forward(up, down) is None  # how many each token takes
    assert moe_forward(_TOPK, up) is None
    assert moe_forward(_TOPK, up, down, _weights([8, 5, 7], BF16)) is None
    assert moe_forward(_TOPK, _weights([4, 64, 96], BF16), _weights([4, 48, 64], BF16)) is None  # others elsewhere
    assert moe_forward(_TOPK, _weights([8, 60, 96], BF16), down) is None
    assert moe_forward() is None
    assert shipped_models().of("vllm::moe_forward_shared") is None


def test_routing_reads_all_scores_and_writes_what_is_chosen() -> None:
    # As triton_kernels records it: 8192 tokens, 4 of 32 experts; a weight and a number of two bytes each.
    shapes: list[list[int]] = [[8192, 32], [], [], [], [], [], []]
    kinds = [BF16, "Scalar", "Scalar", "Scalar", "Scalar", "", ""]
    counted = work("TopK", shapes, kinds, ["", "4", "True", "1", "True", "", ""])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (8192 * 32 * 2, 8192 * 4 * (2 + 2))
    assert work("TopK", shapes, kinds) is None
    softmax = work("_moe_C::topk_softmax", [[46, 2], [46, 2], [46, 2], [46, 8]], ["float", "int", "int", "float"])
    assert softmax is not None
    assert (softmax.read_bytes, softmax.written_bytes) == (4 * 46 * 8, 3 * 4 * 46 * 2)


def test_combining_adds_up_the_experts_of_each_token() -> None:
    counted = work("_moe_C::moe_sum", [[46, 2, 64], [46, 64]], [BF16, BF16])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes, counted.vector_flop) == (
        2 * 46 * 2 * 64,
        2 * 46 * 64,
        46 * 2 * 64,
    )
