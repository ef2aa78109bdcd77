"""What names of generated kernels say."""

from __future__ import annotations

import pytest

from xsp_analyze.classification.labels import operators_of_name


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        (
            "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_12",
            ["_to_copy", "add", "mean", "mul", "pow", "rsqrt"],
        ),
        ("cpp_fused_gelu_view_2", ["gelu", "view"]),
        ("cpp_fused_add_native_layer_norm_view_1", ["add", "native_layer_norm", "view"]),
        (
            "cpp_fused_add_native_layer_norm_native_layer_norm_backward_view_5",
            ["add", "native_layer_norm", "native_layer_norm_backward", "view"],
        ),
        ("triton_poi_fused_unsafe_ops_0", ["unsafe", "ops"]),  # unknown names fall apart at their underscores
        ("triton_tem_fused_mm_7", ["mm"]),
        ("cpp_fused__native_batch_norm_legit_functional_relu_0", ["_native_batch_norm_legit_functional", "relu"]),
        ("cpp_fused_add_nativ", ["add", "nativ"]),  # cut short by the compiler
    ],
)
def test_operators_stand_in_the_name(name: str, operators: list[str]) -> None:
    assert operators_of_name(name) == ", ".join(f"aten::{each}" for each in operators)


def test_other_names_say_nothing() -> None:
    assert operators_of_name("ampere_sgemm_128x64_nn") is None
    assert operators_of_name("extern_kernels.mm") is None
