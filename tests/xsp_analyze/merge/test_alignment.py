"""Alignment of sequences, against a table of longest common subsequences; and the spellings of kernel names."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.classification.labels import base_name, normal_name
from xsp_analyze.merge.matching import align

_SEQUENCES = st.lists(st.integers(0, 3), max_size=14)


def _longest_common_subsequence(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(_SEQUENCES, _SEQUENCES)
def test_pairs_are_equal_in_order_and_as_many_as_can_be(a: list[int], b: list[int]) -> None:
    pairs = align(a, b).pairs
    assert len(pairs) == _longest_common_subsequence(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in itertools.pairwise(pairs))


def test_the_rate_is_of_the_longer_sequence_and_gaps_are_listed() -> None:
    alignment = align("abcde", "abXdeZ")
    assert alignment.rate == 4 / 6
    assert alignment.mismatches() == [([2], [2]), ([], [5])]


def test_nothing_matches_nothing_completely() -> None:
    assert align([], []).rate == 1.0
    assert align("a", []).rate == 0.0


@pytest.mark.slow
def test_long_sequences_with_many_edits_still_align_nearly_all() -> None:
    chance = random.Random(1)  # noqa: S311 (a reproducible input, no secret)
    base = [chance.randrange(50) for _ in range(60_000)]
    other = [99 if chance.random() < 0.04 else code for code in base]
    same = sum(x == y for x, y in zip(base, other, strict=True))
    assert len(align(base, other).pairs) > 0.995 * same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::F<float> >(int)",
            "at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::F<float>>(int)",
        ),
        ("void k<true, 3ul, false>(char*)", "void k<(bool)1, (unsigned long)3, (bool)0>(char *)"),
        ("void f<g()::{lambda(int)#2}>(T1)", "void f<g()::[lambda(int) (instance 2)]>(T1)"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn [clone .kd]"),
    ],
)
def test_profilers_spellings_of_a_name_become_one(one: str, other: str) -> None:
    assert normal_name(one) == normal_name(other)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, F<float>>(int, F<float>)", "vectorized_elementwise_kernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("sm80_xmma_fprop", "sm80_xmma_fprop"),
        ("void cudnn::bn_fw_inf_1C11_kernel(int)", "bn_fw_inf_1C11_kernel"),
    ],
)
def test_the_function_alone(name: str, function: str) -> None:
    assert base_name(name) == function


def test_different_kernels_stay_different() -> None:
    assert normal_name("void k<4>(int)") != normal_name("void k<8>(int)")
    assert normal_name("ns::k<float>") != normal_name("ns::k<double>")
