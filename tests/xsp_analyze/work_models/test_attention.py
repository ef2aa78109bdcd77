"""Attention: pairs counted one by one, flop and bytes worked out on paper, and as torch counts them."""

# ruff: noqa: FBT003 (inputs as they stand in the schema)
from __future__ import annotations

import random
import tomllib
from dataclasses import replace
from importlib import resources
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.paper_calls import bytes_of, flop_of, tensor, work
from xsp_analyze.work_models.call import Call, ServingLengths, Tensor
from xsp_analyze.work_models.registry import shipped_models

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.work_models.call import ModelledWork

_SDPA = "aten::scaled_dot_product_attention"
_FLASH = "flash_attn::_flash_attn_forward"
_FLASH_BACKWARD = "flash_attn::_flash_attn_backward"
_VARLEN = "flash_attn::_flash_attn_varlen_forward"
_FA3 = "flash_attn_3::fwd"
_EFFICIENT = "aten::_efficient_attention_forward"


def bf16(*shape: int) -> Tensor:
    return tensor("bf16", *shape)


def int32(*shape: int) -> Tensor:
    return tensor("int32", *shape)


def answered(result: ModelledWork | None) -> ModelledWork:
    """Fails where the model gave no answer."""
    assert result is not None
    return result


def of_step(lengths: ServingLengths | None, name: str, *inputs: object) -> ModelledWork | None:
    """Of a call in a serving step with these lengths."""
    tensors = [each if isinstance(each, Tensor) else None for each in inputs]
    values = [None if isinstance(each, Tensor) else each for each in inputs]
    model = shipped_models().of(name)
    assert model is not None
    return model.work(Call(name, tensors, values, lengths=lengths))


def lengths_of(*requests: tuple[int, int]) -> ServingLengths:
    """Of requests with that many new tokens and, these among them, keys."""
    return ServingLengths(
        sum(q for q, _ in requests),
        sum(k for _, k in requests),
        sum(q * q for q, _ in requests),
        sum(q * k for q, k in requests),
    )


def kept(queries: int, keys: int, left: int | None, right: int | None, *, last: bool) -> list[tuple[int, int]]:
    """Each pair of a query and a key that it sees, around its own: the first to the first, or the last to the last."""
    shift = keys - queries if last else 0
    return [
        (q, k)
        for q, k in product(range(queries), range(keys))
        if (right is None or k <= q + shift + right) and (left is None or k >= q + shift - left)
    ]


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 5), (3, 8), (8, 3), (1, 9), (9, 1)])
@pytest.mark.parametrize("left", [None, 0, 2, 20])
@pytest.mark.parametrize(("causal", "right"), [(True, -1), (False, -1), (False, 0), (False, 3), (True, 3)])
def test_pairs_and_keys_within_causal_masks_and_windows(
    queries: int, keys: int, left: int | None, right: int, *, causal: bool
) -> None:
    pairs = kept(queries, keys, left, 0 if causal else right if right >= 0 else None, last=True)
    q, k = bf16(3, queries, 2, 4), bf16(3, keys, 1, 4)
    result = answered(work(_FLASH, q, k, k, 0.0, 1.0, causal, -1 if left is None else left, right, 0.0, None, False))
    assert result.flop == 3 * 2 * len(pairs) * 2 * (4 + 4)
    assert result.vector_flop == 3 * 2 * len(pairs) * 5
    read = 2 * 3 * (queries * 2 * 4 + 2 * (_span(pairs)) * 4)
    written = 3 * queries * 2 * (2 * 4 + 4)
    assert (result.read_bytes, result.written_bytes) == (read, written)


def _span(pairs: list[tuple[int, int]]) -> int:
    """Keys that any query sees; they lie side by side."""
    return len({k for _, k in pairs})


@pytest.mark.parametrize(
    ("mask", "pairs"),
    [
        (0, 3 * 5),
        (1, 1 + 2 + 3),  # from the first query and key
        (2, 3 + 4 + 5),  # to the last of both
    ],
)
def test_the_kind_of_mask_says_where_its_triangle_ends(mask: int, pairs: int) -> None:
    q, k = bf16(1, 3, 2, 8), bf16(1, 5, 2, 8)
    assert flop_of(_EFFICIENT, q, k, k, None, None, None, 3, 5, 0.0, mask, False) == 4 * pairs * 2 * 8


def test_a_window_of_efficient_attention_holds_the_querys_own_key() -> None:
    q = bf16(1, 6, 2, 8)
    pairs = 1 + 2 + 3 + 3 + 3 + 3
    assert flop_of(_EFFICIENT, q, q, q, None, None, None, 6, 6, 0.0, 1, False, None, None, 3) == 4 * pairs * 2 * 8


def test_keys_and_values_of_fewer_heads_and_other_sizes() -> None:
    # 8 heads of queries of 24 share 2 of keys, whose values have 16: MLA as its prefill computes it, and GQA
    q, k, v = bf16(2, 8, 10, 24), bf16(2, 2, 12, 24), bf16(2, 2, 12, 16)
    result = answered(work(_SDPA, q, k, v, None, 0.0, False, None, True))
    assert result.flop == 2 * (2 * 8) * (10 * 12) * (24 + 16)
    assert result.read_bytes == 2 * (2 * 8 * 10 * 24 + 2 * 2 * 12 * (24 + 16))
    assert result.written_bytes == 2 * (2 * 8 * 10 * 16)


def test_expanded_heads_are_read_once_and_a_mask_as_it_is_stored() -> None:
    q = bf16(2, 8, 10, 16)
    k = replace(q, strides=(160, 0, 16, 1))  # one head for all
    mask = Tensor((2, 8, 10, 10), "fp32", (0, 0, 10, 1))
    read, written = bytes_of(_SDPA, q, k, k, mask, 0.0, False, None, False)
    assert (read, written) == (2 * (2560 + 2 * 320) + 4 * 100, 2 * 2560)


def test_one_batch_of_keys_serves_all_of_queries() -> None:
    q, k = bf16(3, 2, 10, 16), bf16(1, 2, 20, 16)
    assert flop_of(_SDPA, q, k, k, None, 0.0, False) == 4 * 3 * 2 * 10 * 20 * 16
    assert bytes_of(_SDPA, q, k, k, None, 0.0, False) == (2 * (960 + 2 * 640), 2 * 960)


def test_the_operator_that_writes_to_a_given_output_counts_the_same() -> None:
    q = bf16(2, 10, 4, 16)
    other = (None, None, 10, 10, 0.0, True, False, None, 3, None)
    forward, inplace = "aten::_flash_attention_forward", "aten::_flash_attention_forward_no_dropout_inplace"
    assert work(inplace, q, q, q, q, *other) == work(forward, q, q, q, *other)
    assert flop_of(forward, q, q, q, *other) == 4 * 2 * 4 * (1 + 2 + 3 + 7 * 4) * 16


def test_a_window_may_be_a_list() -> None:
    q, sums = bf16(6, 2, 16), int32(2)
    varlen = ("torch_attn::_varlen_attn", q, q, q, sums, sums, 6, 6, False, None)
    assert flop_of(*varlen, [2, 0], False) == 4 * (1 + 2 + 3 * 4) * 2 * 16
    assert flop_of(*varlen, None, False) == 4 * 36 * 2 * 16


def test_logarithms_are_written_where_they_are_put_out() -> None:
    q = bf16(2, 8, 10, 16)
    efficient = "aten::_scaled_dot_product_efficient_attention"
    assert bytes_of(efficient, q, q, q, None, False, 0.0, False) == (2 * 3 * 2560, 2 * 2560)
    assert bytes_of(efficient, q, q, q, None, True, 0.0, False) == (2 * 3 * 2560, 2 * 2560 + 4 * 160)


def test_the_backward_pass_reads_what_the_forward_pass_left_and_writes_three_gradients() -> None:
    q, k, v, lse = bf16(2, 10, 8, 24), bf16(2, 10, 2, 24), bf16(2, 10, 2, 16), tensor("fp32", 2, 8, 10)
    out = bf16(2, 10, 8, 16)
    result = answered(work(_FLASH_BACKWARD, out, q, k, v, out, lse, q, k, v, 0.0, 1.0, True, -1, -1, 0.0, None, False))
    assert result.flop == 2 * (2 * 8) * 55 * (3 * 24 + 2 * 16)
    operands = 2 * (3840 + 960 + 640)
    assert result.read_bytes == operands + 2 * 2 * 2560 + 4 * 160
    assert result.written_bytes == operands


def test_what_comes_of_fp8_is_bf16() -> None:
    q = tensor("fp8", 1, 4, 2, 16)
    result = answered(work(_FA3, q, q, q, *[None] * 21, False, -1, -1))
    assert (result.read_bytes, result.written_bytes) == (3 * 128, 2 * 128 + 4 * 8)


def test_requests_in_one_dimension_are_counted_where_their_lengths_follow() -> None:
    q, one, three = bf16(24, 2, 16), int32(2), int32(4)

    def flop(cumulative: Tensor, longest: int) -> int | None:
        return flop_of(
            _VARLEN, q, q, q, cumulative, cumulative, longest, longest, 0.0, 1.0, False, -1, -1, 0.0, None, False
        )

    assert flop(one, 24) == 4 * 24 * 24 * 2 * 16
    assert flop(three, 8) == 4 * 3 * 8 * 8 * 2 * 16  # all as long as the longest
    assert flop(three, 9) is None


def test_lengths_of_the_step_tell_what_cumulative_sums_do_not() -> None:
    # 3 requests of 4, 1 and 3 new tokens and 4, 9 and 5 keys: 10 + 9 + (3 + 4 + 5) pairs; the batch is padded to 10
    lengths = lengths_of((4, 4), (1, 9), (3, 5))
    q, cache, sums, table = bf16(10, 4, 16), bf16(50, 16, 2, 16), int32(4), int32(3, 7)
    inputs = (q, cache, cache, sums, sums, 4, 9, 0.0, 1.0, True, -1, -1, 0.0, None, False, table)
    result = answered(of_step(lengths, _VARLEN, *inputs))
    assert result.flop == 4 * 31 * 4 * 16
    assert result.read_bytes == 2 * (8 * 4 * 16 + 2 * 18 * 2 * 16)
    assert result.written_bytes == 8 * 4 * (2 * 16 + 4)
    assert of_step(None, _VARLEN, *inputs) is None
    all_see_all = answered(of_step(lengths, _VARLEN, *inputs[:9], False, *inputs[10:]))
    assert all_see_all.flop == 4 * (16 + 9 + 15) * 4 * 16
    assert of_step(lengths, _VARLEN, *inputs[:10], 8, *inputs[11:]) is None  # a window: each request's length counts
    few = bf16(7, 4, 16)  # the other requests went another way
    assert of_step(lengths, _VARLEN, few, *inputs[1:]) is None


@pytest.mark.parametrize("missing", ["keys", "queries_keys", "queries_squared"])
def test_lengths_that_the_step_does_not_say_are_unknown(missing: str) -> None:
    lengths = replace(lengths_of((4, 4), (1, 9)), **{missing: None})
    q, k = bf16(5, 4, 16), bf16(5, 2, 16)
    assert of_step(lengths, "vllm::unified_attention_with_output", q, k, k, q) is None


def test_paged_attention_reads_the_keys_of_its_requests_from_the_cache() -> None:
    # 2 requests of one new token with 5 and 9 keys; 4 heads of 32 share 2, of which a page of fp8 has 16 keys
    lengths = lengths_of((1, 5), (1, 9))
    out = bf16(2, 4, 32)
    key, value = tensor("uint8", 70, 2, 2, 16, 16), tensor("uint8", 70, 2, 32, 16)
    result = answered(of_step(lengths, "_C::paged_attention_v1", out, out, key, value, 2, 1.0, int32(2, 8), int32(2)))
    assert result.flop == 4 * 14 * 4 * 32
    assert (result.read_bytes, result.written_bytes) == (2 * 256 + 2 * 14 * 2 * 32, 2 * 256)


def test_queries_with_heads_side_by_side_have_as_many_as_fit() -> None:
    lengths = lengths_of((3, 3))
    result = answered(
        of_step(lengths, "sglang::unified_attention_with_output", bf16(3, 64), bf16(3, 2, 16), bf16(3, 2, 16))
    )
    assert (result.flop, result.vector_flop) == (4 * 6 * 64, 5 * 6 * 4)


@pytest.mark.parametrize(
    ("requests", "pair"),
    [
        # 4 heads: 24 = 16 + 8 that is rotated, values of 16, latents of 32
        (((3, 3), (2, 7)), 24 + 16),  # keys and values as they come out of the latents
        (((1, 4), (1, 7)), 2 * 32 + 8),  # decoding: scores of latents and what is rotated, and latents weighted
    ],
)
def test_latent_attention_is_counted_by_what_it_computes_least(
    requests: tuple[tuple[int, int], ...], pair: int
) -> None:
    lengths = lengths_of(*requests)
    new, keys = sum(q for q, _ in requests), sum(k for _, k in requests)
    pairs = sum(len(kept(q, k, None, 0, last=True)) for q, k in requests)
    name = "vllm::unified_mla_attention_with_output"
    result = answered(of_step(lengths, name, bf16(8, 4, 24), bf16(8, 32), bf16(8, 1, 8), bf16(8, 64), None))
    assert result.flop == 2 * 4 * (pairs * pair + new * 32 * (16 + 16))
    assert result.read_bytes == 2 * (new * 4 * 24 + keys * (32 + 8))
    assert result.written_bytes == 2 * new * 64


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        (_SDPA, (bf16(2, 8, 10, 16), bf16(2, 8, 10, 16), bf16(2, 8, 10, 16), None, 0.0)),  # causal or not: unsaid
        (_SDPA, (bf16(2, 6, 10, 16), bf16(2, 4, 10, 16), bf16(2, 4, 10, 16), None, 0.0, False)),  # heads do not fit
        (_SDPA, (bf16(2, 6, 10, 16), bf16(2, 6, 10, 8), bf16(2, 6, 10, 8), None, 0.0, False)),
        (_SDPA, (bf16(2, 6, 10, 16), bf16(3, 6, 10, 16), bf16(3, 6, 10, 16), None, 0.0, False)),
        (_SDPA, (bf16(2, 2, 6, 10, 16), bf16(2, 2, 10, 16), bf16(2, 2, 10, 16), None, 0.0, False)),
        (_SDPA, (bf16(2, 6, 10, 16), None, bf16(2, 6, 10, 16), None, 0.0, False)),
        (_FLASH, (bf16(2, 10, 6, 16), bf16(2, 10, 6, 16), bf16(2, 10, 6, 16), 0.0, 1.0, 0.5)),  # no truth value
        ("xformers_flash::flash_fwd", (bf16(8, 2, 16), bf16(8, 2, 16), bf16(8, 2, 16), int32(2), int32(2), 8, 8)),
    ],
)
def test_what_was_not_recorded_is_not_guessed(name: str, inputs: tuple[object, ...]) -> None:
    assert work(name, *inputs) is None


def test_flex_attention_is_told_where_no_mask_of_blocks_was_given() -> None:
    q, k, lse = bf16(2, 8, 256, 64), bf16(2, 2, 256, 64), tensor("fp32", 2, 8, 256)
    one, blocks = int32(1, 1, 1, 1), int32(1, 1, 2, 2)
    name = "triton_tem_fused_flex_attention_0"
    assert flop_of(name, q, k, k, lse, int32(1, 1, 1), one, int32(1, 1, 1), one, q) == 4 * 16 * 256 * 256 * 64
    assert work(name, q, k, k, lse, int32(1, 1, 2), blocks, int32(1, 1, 2), blocks, q) is None
    backward = "triton_tem_fused_flex_attention_backward_zeros_1"
    gradients = (lse, q, q, k, int32(1, 1, 1), one)
    assert flop_of(backward, q, k, k, lse, *gradients) == 10 * 16 * 256 * 256 * 64
    assert work(backward, q, k, k, lse, *gradients[:-1], blocks) is None


def test_sage_attention_multiplies_integers_and_quantises_before() -> None:
    q, v, out = tensor("int8", 1, 24, 768, 128), tensor("fp8", 1, 24, 768, 128), bf16(1, 24, 768, 128)
    elements = 24 * 768 * 128
    result = answered(work("sage_fwd_1", q, q, v, *[None] * 13, out))
    assert result.flop == 4 * 24 * 768 * 768 * 128
    assert (result.read_bytes, result.written_bytes) == (3 * elements, 2 * elements)
    scale, other, last = tensor("fp32", 1, 24, 3), tensor("fp32", 1, 24, 6), tensor("fp32", 1, 24, 128)
    quantised = answered(work("sage_quant_kernel_0", out, q, scale, out, q, other, out, v, last))
    assert quantised.read_bytes == 3 * 2 * elements + 4 * 24 * 128
    assert quantised.written_bytes == 3 * elements + 4 * 24 * 9


def test_a_cache_is_written_with_the_new_tokens_of_the_step_in_its_own_type() -> None:
    key = bf16(10, 2, 16)
    for cache, size in ((tensor("bf16", 50, 16, 2, 16), 2), (tensor("uint8", 50, 16, 2, 16), 1)):
        inputs = (key, key, cache, cache, tensor("int64", 10), None)
        padded = answered(of_step(None, "_C_cache_ops::reshape_and_cache_flash", *inputs))
        assert (padded.read_bytes, padded.written_bytes) == (2 * 2 * 320 + 8 * 10, size * 2 * 320)
        own = answered(of_step(lengths_of((4, 4), (1, 9)), "_C_cache_ops::reshape_and_cache_flash", *inputs))
        assert (own.read_bytes, own.written_bytes) == (2 * 2 * 160 + 8 * 5, size * 2 * 160)
    latent = answered(
        of_step(
            None, "_C_cache_ops::concat_and_cache_mla", bf16(6, 32), bf16(6, 8), bf16(50, 16, 40), tensor("int64", 6)
        )
    )
    assert (latent.read_bytes, latent.written_bytes) == (2 * 6 * 40 + 8 * 6, 2 * 6 * 40)


def test_rotary_embedding_turns_part_of_each_head() -> None:
    # 6 tokens of 4 heads and 1 of 32 elements, of which 16 are turned, by a table of 100 positions
    indices, table = tensor("int64", 6), bf16(100, 16)
    result = answered(work("_C::rotary_embedding", indices, bf16(6, 128), bf16(6, 32), 32, table, True))
    turned = 6 * 5 * 16
    assert (result.flop, result.vector_flop) == (0, 3 * turned)
    assert (result.read_bytes, result.written_bytes) == (2 * turned + 2 * 6 * 16 + 8 * 6, 2 * turned)
    cached = answered(
        work("aiter::rope_cached_fwd_impl", bf16(9, 1, 4, 32), bf16(9, 1, 4, 32), bf16(9, 16), bf16(9, 16))
    )
    assert (cached.read_bytes, cached.written_bytes) == (2 * (9 * 128 + 2 * 9 * 16), 2 * 9 * 128)


@pytest.mark.parametrize("seed", range(20))
def test_no_call_whatever_was_recorded_fails_or_takes_less_than_nothing(seed: int) -> None:
    chosen = random.Random(seed)  # noqa: S311 (chooses what is tried)
    names = [name for file in ("attention", "rotary") for name in _names(file)]

    def value() -> object:
        if chosen.random() < 0.4:
            return chosen.choice([None, True, False, 0, 1, 2, -1, 0.0, "x", [1, 2], [], [bf16(2)]])
        shape = [chosen.choice([0, 1, 2, 3, 4, 8]) for _ in range(chosen.randrange(6))]
        return tensor(chosen.choice(["bf16", "fp8", "int32", "int64", "bool"]), *shape)

    for _ in range(200):
        lengths = chosen.choice([None, ServingLengths(), lengths_of(), lengths_of((2, 3)), lengths_of((3, 3), (1, 2))])
        result = of_step(lengths, chosen.choice(names), *(value() for _ in range(chosen.randrange(28))))
        if result is not None:
            assert min(result.flop or 0, result.vector_flop, result.read_bytes or 0, result.written_bytes or 0) >= 0


def _names(file: str) -> list[str]:
    """Of the operators that the models of this file hold for."""
    text = resources.files("xsp_analyze.work_models").joinpath("models", f"{file}.toml").read_text(encoding="utf-8")
    return [n.replace("[0-9]", "1").replace("*", "_") for row in tomllib.loads(text)["model"] for n in row["operators"]]


# --- as torch counts them


def _counted(run: Any) -> list[tuple[Call, int]]:  # noqa: ANN401
    """Calls on tensors without data, each with torch's own count of flop."""
    with pytest.importorskip("tests.helpers.dispatched_calls").Recorder() as recorder:
        run(pytest.importorskip("torch"))
    assert recorder.counted
    return list(recorder.counted)


def _flop(call: Call) -> int | None:
    model = shipped_models().of(call.name)
    assert model is not None, call.name
    return answered(model.work(call)).flop


def _meta(torch: Any, *shape: int, kind: str = "bfloat16") -> Any:  # noqa: ANN401
    return torch.empty(shape, device="meta", dtype=getattr(torch, kind))


def _forward(torch: Any, q: Any, k: Any, v: Any, *, causal: bool) -> None:  # noqa: ANN401
    aten = torch.ops.aten
    aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)


def _backward(torch: Any, out: Any, q: Any, k: Any, v: Any, *, causal: bool) -> None:  # noqa: ANN401
    aten, lse = torch.ops.aten, _meta(torch, *q.shape[:3], kind="float32")
    sums, seed = _meta(torch, 3, kind="int32"), _meta(torch, kind="int64")
    longest = (q.shape[2], k.shape[2])
    aten._scaled_dot_product_flash_attention_backward(
        out, q, k, v, out, lse, sums, sums, *longest, 0.0, causal, seed, seed
    )
    mask = _meta(torch, *q.shape[:3], k.shape[2])
    aten._scaled_dot_product_efficient_attention_backward(
        out, q, k, v, mask, out, lse, seed, seed, 0.0, [True] * 4, causal
    )
    aten._scaled_dot_product_cudnn_attention_backward(
        out, q, k, v, out, lse, seed, seed, mask, sums, sums, *longest, 0.0, causal
    )


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(("heads", "value_size"), [(8, 64), (2, 64), (8, 32)])
def test_forward_and_backward_equal_torchs_count_without_a_mask(heads: int, value_size: int) -> None:
    def run(torch: Any) -> None:  # noqa: ANN401
        q, k = _meta(torch, 2, 8, 48, 64), _meta(torch, 2, heads, 80, 64)
        v, out = _meta(torch, 2, heads, 80, value_size), _meta(torch, 2, 8, 48, value_size)
        _forward(torch, q, k, v, causal=False)
        _backward(torch, out, q, k, v, causal=False)

    counted = _counted(run)
    assert len(counted) == 6
    assert [_flop(call) for call, _ in counted] == [flop for _, flop in counted]


@pytest.mark.torch
@pytest.mark.slow
def test_of_a_causal_call_only_pairs_that_are_kept_count_which_torch_does_not_leave_out() -> None:
    def run(torch: Any) -> None:  # noqa: ANN401
        q = _meta(torch, 2, 8, 96, 64)
        _forward(torch, q, q, q, causal=True)
        _backward(torch, q, q, q, q, causal=True)

    counted = _counted(run)
    assert len(counted) == 6
    assert [(_flop(call) or 0) * 96 * 96 for call, _ in counted] == [flop * 96 * 97 // 2 for _, flop in counted]


@pytest.mark.torch
@pytest.mark.slow
def test_requests_of_one_length_in_one_dimension_equal_torchs_count() -> None:
    def run(torch: Any) -> None:  # noqa: ANN401
        aten, q, sums = torch.ops.aten, _meta(torch, 96, 8, 64), _meta(torch, 4, kind="int32")
        k = _meta(torch, 96, 2, 64)
        out, lse, seed = q, _meta(torch, 8, 96, kind="float32"), _meta(torch, kind="int64")
        aten._flash_attention_forward(q, q, q, sums, sums, 32, 32, 0.0, False, False)
        aten._flash_attention_backward(out, q, q, q, out, lse, sums, sums, 32, 32, 0.0, False, seed, seed)
        pytest.importorskip("torch.nn.attention.varlen")
        varlen = torch.ops.torch_attn
        varlen._varlen_attn(q, k, k, sums, sums, 32, 32, False, None, [-1, -1], True)
        varlen._varlen_attn_out(q, q, q, q, sums, sums, 32, 32)
        varlen._varlen_attn_backward(q, q, q, q, q, lse, sums, sums, 32, 32, False, seed)
        one, lse = q[None], lse[None]
        aten._efficient_attention_forward(one, one, one, None, sums, sums, 32, 32, 0.0, 0, True)
        aten._efficient_attention_backward(
            one, one, one, one, None, one, sums, sums, 32, 32, lse, 0.0, seed, seed, 0, False
        )

    counted = _counted(run)
    assert [_flop(call) for call, _ in counted] == [flop for _, flop in counted]
    assert len(counted) == 7


@pytest.mark.torch
@pytest.mark.slow
def test_every_operator_of_attention_that_torch_counts_has_a_model() -> None:
    counter = pytest.importorskip("torch.utils.flop_counter")
    pytest.importorskip("torch.nn.attention.varlen")
    names = [str(each).replace(".", "::") for each in counter.flop_registry if "att" in str(each)]
    assert len(names) == 15
    functions = {"flex_attention", "flex_attention_backward"}  # of which profilers see what they were compiled to
    assert {name for name in names if shipped_models().of(name) is None} == functions


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("heads", [8, 2])
def test_calls_that_ran_equal_torchs_count_of_products(tmp_path: Path, heads: int) -> None:
    """As the profiler writes them; torch counts the path by plain products, which does not compute scores again."""
    torch, counter = pytest.importorskip("torch"), pytest.importorskip("torch.utils.flop_counter")
    profiled = pytest.importorskip("tests.helpers.dispatched_calls").profiled
    q, k = torch.randn(2, 8, 24, 16, requires_grad=True), torch.randn(2, heads, 40, 16, requires_grad=True)

    def run() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=heads != 8).sum().backward()

    result = {call.name: _flop(call) for call in profiled(run, tmp_path) if "_dot_product" in call.name}
    math = torch.nn.attention.SDPBackend.MATH
    with torch.nn.attention.sdpa_kernel(math), counter.FlopCounterMode(display=False) as mode:
        run()
    forward, total = 2 * mode.get_total_flops() // 6, mode.get_total_flops()
    assert result == {
        "aten::scaled_dot_product_attention": forward,
        "aten::_scaled_dot_product_flash_attention_for_cpu": forward,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": total - forward + forward // 2,
    }


# --- published totals

_MODELS = [
    # name, heads of queries and of keys, size of a head, tokens, layers, flop of attention without a mask
    # GPT-2 small: 12 flop a layer, head, element and token of context, forward and backward (PaLM, appendix B)
    ("gpt_2_small", (12, 12, 64, 1024, 12), 12 * 12 * 12 * 64 * 1024 * 1024 // 3),
    # BERT-base, 512 tokens: 4 s^2 h a layer (Narayanan et al. 2021, appendix)
    ("bert_base", (12, 12, 64, 512, 12), 12 * 4 * 512 * 512 * 768),
    # ViT-B/16: torchvision's 17.56 G multiply-adds without its convolution, products of layers, and head
    ("vit_b_16", (12, 12, 64, 197, 12), 2 * (17.56e9 - 196 * 768**2 - 12 * 197 * 12 * 768**2 - 768_000)),
    # Llama 3 8B, a block of 8192 tokens: as many products as with a head of keys for each of queries
    ("llama_3_8b", (32, 8, 128, 8192, 1), 4 * 8192 * 8192 * 4096),
]


@pytest.mark.parametrize(("shape", "published"), [each[1:] for each in _MODELS], ids=[each[0] for each in _MODELS])
def test_attentions_part_of_published_totals(shape: tuple[int, ...], published: float) -> None:
    heads, key_heads, size, tokens, layers = shape
    q, k = bf16(1, heads, tokens, size), bf16(1, key_heads, tokens, size)
    flop = layers * (flop_of(_SDPA, q, k, k, None, 0.0, False) or 0)
    assert flop == pytest.approx(published, rel=0.01)
    causal = layers * (flop_of(_SDPA, q, k, k, None, 0.0, True) or 0)
    assert causal * 2 * tokens == flop * (tokens + 1)


@pytest.mark.torch
@pytest.mark.slow
def test_attention_of_a_small_u_net_equals_its_products(tmp_path: Path) -> None:
    """Two convolutions around self-attention of 4 heads over 8 x 8 places, and attention to 7 others."""
    torch, counter = pytest.importorskip("torch"), pytest.importorskip("torch.utils.flop_counter")
    helper, nn = pytest.importorskip("tests.helpers.dispatched_calls"), pytest.importorskip("torch").nn
    down, up = nn.Conv2d(3, 32, 3, 2, 1), nn.ConvTranspose2d(32, 3, 2, 2)
    image, labels = torch.randn(2, 3, 16, 16), torch.randn(2, 7, 32)

    def heads(tokens: Any) -> Any:  # noqa: ANN401
        return tokens.unflatten(-1, (4, 8)).transpose(1, 2)

    def run() -> None:
        tokens = down(image).flatten(2).transpose(1, 2)
        for keys in (tokens, labels):
            mixed = nn.functional.scaled_dot_product_attention(heads(tokens), heads(keys), heads(keys))
            tokens = tokens + mixed.transpose(1, 2).flatten(2)
        up(tokens.transpose(1, 2).unflatten(-1, (8, 8)))

    with torch.no_grad():
        calls = helper.profiled(run, tmp_path)
        math = torch.nn.attention.SDPBackend.MATH
        with torch.nn.attention.sdpa_kernel(math), counter.FlopCounterMode(display=False) as mode:
            run()
    of_attention = [_flop(call) for call in calls if call.name == _SDPA]
    assert of_attention == [4 * 2 * 4 * 64 * 64 * 8, 4 * 2 * 4 * 64 * 7 * 8]
    of_convolutions = [_flop(call) or 0 for call in calls if call.name == "aten::convolution"]
    assert sum(of_convolutions) + sum(each or 0 for each in of_attention) == mode.get_total_flops()
