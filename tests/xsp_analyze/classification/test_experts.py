"""The data file of mixtures of experts: each entry takes its own example, and no entry before it does."""

from __future__ import annotations

import pytest

from xsp_analyze.classification import KernelClass, by_name, learn
from xsp_analyze.classification.classify import kernel_entries
from xsp_analyze.classification.experts import (
    ExpertEntry,
    ExpertPart,
    expert_entries,
    expert_matcher,
    module_entries,
    module_matcher,
)

_ENTRIES = [(entries, entry) for entries in (expert_entries(), module_entries()) for entry in entries]


@pytest.mark.parametrize(("entries", "entry"), _ENTRIES, ids=lambda e: e.example[:40] if type(e) is ExpertEntry else "")
def test_an_example_is_taken_by_its_own_entry(entries: tuple[ExpertEntry, ...], entry: ExpertEntry) -> None:
    assert next(e for e in entries if e.pattern.search(entry.example)) is entry
    assert entry.source


def test_many_names_at_once_are_taken_as_each_by_itself() -> None:
    for matcher, entries in ((expert_matcher(), expert_entries()), (module_matcher(), module_entries())):
        texts = [entry.example for entry in entries]
        matcher.learn(texts)
        assert [matcher.first(text) for text in texts] == list(entries)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "expert products"),
        ("_p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x64x1", "expert products"),
        ("_topk_forward", "routing"),
        ("_sum_bitmatrix_rows", "routing"),
        ("_combined_routing_memset", "routing"),
        ("_finalize_matmul_scatter_bf16", "combine"),
        ("fused_moe_kernel", "expert products"),
        ("_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E", "expert products"),
        ("void ck_tile::kentry<1, ck_tile::MoeSortingMultiPhaseKernel_P23<ck_tile::MoeSortingProblemMp> >", "routing"),
        ("_unpermute_kernel", "combine"),
        ("_permute_kernel", "dispatch"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", None),
        ("void batched_transpose_kernel<float>(float*)", None),
    ],
)  # fmt: skip
def test_parts_of_known_names(name: str, part: str | None) -> None:
    entry = expert_matcher().first(name)
    assert (str(entry.part) if entry and not entry.between else None) == part


@pytest.mark.parametrize(
    ("path", "part", "block"),
    [
        ("model.layers.3.mlp.gate", "routing", "model.layers.3.mlp"),
        ("model.layers.3.mlp.gate_proj", None, None),
        ("model.layers.3.mlp.experts.7.w1", "expert products", "model.layers.3.mlp"),
        ("model.layers.3.mlp.shared_expert.up_proj", "shared experts", "model.layers.3.mlp"),
        ("model.layers.3.mlp.shared_experts", "shared experts", "model.layers.3.mlp"),
        ("Model_0.MixtralSparseMoeBlock_3.Linear_9", "routing", "Model_0.MixtralSparseMoeBlock_3"),
        ("Model_0.MixtralSparseMoeBlock_3.MixtralBlockSparseTop2MLP_1.Linear_9", "expert products",
         "Model_0.MixtralSparseMoeBlock_3"),
        ("Model_0.GptOssMLP_1.GptOssTopKRouter_1", "routing", "Model_0.GptOssMLP_1"),
        ("Model_0.GptOssMLP_1.GptOssExperts_1", "expert products", "Model_0.GptOssMLP_1"),
        ("Model_0.MLPBlock_1.FusedMoE_1", "expert products", "Model_0.MLPBlock_1"),
        ("Model_0.MLPBlock_1.ReplicatedLinear_1", "routing", "Model_0.MLPBlock_1"),
        ("Model_0.LlamaMLP_1.SiLU_3", None, None),
    ],
)  # fmt: skip
def test_parts_and_blocks_of_known_paths(path: str, part: str | None, block: str | None) -> None:
    entry = module_matcher().first(path)
    assert (str(entry.part) if entry and entry.part else None) == part
    assert (entry.block(path) if entry else None) == block


def test_what_is_an_expert_s_product_by_name_is_of_the_class() -> None:
    examples = [entry.example for entry in expert_entries() if entry.part is ExpertPart.PRODUCTS]
    learn(names=examples)
    classes = {example: by_name(example) for example in examples}
    assert {c.kernel_class if c else None for c in classes.values()} == {KernelClass.MIXTURE_OF_EXPERTS}
    assert kernel_entries()
