"""Kernels that a compiler generated: bytes by the operands that they were launched with."""

from __future__ import annotations

from tests.helpers.modelled_call import BF16, work
from xsp_analyze.work_models.registry import shipped_models


def test_a_pointwise_kernel_moves_each_operand_once() -> None:
    # Padding rows of 2880 to 3072, in bytes of two: as Inductor calls it in a vLLM step.
    shapes, types = [[8192, 2880], [8192, 3072], []], [BF16, BF16, "Scalar"]
    counted = work("triton_poi_fused_constant_pad_nd_0", shapes, types, ["", "", "25165824"])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (8192 * 2880 * 2, 8192 * 3072 * 2)
    assert (counted.flop, counted.vector_flop) == (0, 8192 * 3072)


def test_a_reduction_goes_over_rows_and_columns() -> None:
    # 256 rows of 3072: 256 * 3072, bias of 3072, and a sum of 256 in FP32.
    shapes, types = [[256, 3072], [3072], [1, 256, 1], [], []], [BF16, BF16, "float", "Scalar", "Scalar"]
    counted = work("triton_red_fused_native_layer_norm_5", shapes, types, ["", "", "", "256", "3072"])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (2 * (256 * 3072 + 3072), 4 * 256)
    assert counted.vector_flop == 256 * 3072


def test_no_more_of_an_operand_counts_than_the_grid_can_touch() -> None:
    # A lookup of 4 rows of 8 in a table of 1000: 32 elements of it, not 8000.
    shapes, types = [[4], [1000, 8], [4, 8], []], ["long int", "float", "float", "Scalar"]
    counted = work("triton_poi_fused_embedding_0", shapes, types, ["", "", "", "32"])
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (4 * 8 + 32 * 4, 32 * 4)


def test_only_the_last_scalars_are_sizes_of_the_grid() -> None:
    # A lookup's mask in a vLLM step, by hand: bounds of the vocabulary stand before 888, the one size.
    shapes = [[888], [888], [888], [], [], [], [], [], []]
    types = ["int", "long int", "bool", *["Scalar"] * 6]
    counted = work("triton_poi_fused_add_0", shapes, types, ["", "", "", "0", "25136", "201088", "201088", "0", "888"])
    assert counted is not None
    assert (counted.vector_flop, counted.read_bytes, counted.written_bytes) == (888, 888 * (4 + 8), 888)
    bounded = ["", "", "", "7", "25136", "201088", "201088", "9", "888"]
    assert work("triton_poi_fused_add_0", shapes, types, bounded) == counted


def test_no_more_operations_count_than_the_largest_operand_has_elements() -> None:
    counted = work(
        "triton_red_fused_0", [[16, 8], [4], [], []], ["float", "float", "Scalar", "Scalar"], ["", "", "4", "999"]
    )
    assert counted is not None
    assert counted.vector_flop == 16 * 8


def test_an_expanded_operand_counts_as_it_is_stored() -> None:
    shapes, types, strides = [[64, 8], [64, 8], []], ["float", "float", "Scalar"], [[0, 1], [8, 1], []]
    counted = work("triton_poi_fused_add_0", shapes, types, ["", "", "512"], strides)
    assert counted is not None
    assert (counted.read_bytes, counted.written_bytes) == (8 * 4, 512 * 4)


def test_without_sizes_of_the_grid_nothing_is_known() -> None:
    assert work("triton_poi_fused_0", [[4], [1000, 8], [4, 8]], ["long int", "float", "float"], ["", "", ""]) is None
    assert work("triton_poi_fused_0", [[]], ["Scalar"], ["32"]) is None


def test_a_template_of_a_product_multiplies_the_operands_that_fit_its_output() -> None:
    # (16, 32) by (32, 8); with a bias before them; in batches of 3.
    product = work("triton_tem_fused_mm_0", [[16, 32], [32, 8], [16, 8]], ["float"] * 3)
    biased = work("triton_tem_fused_addmm_1", [[8], [16, 32], [32, 8], [16, 8]], ["float"] * 4)
    batched = work("triton_tem_fused_bmm_2", [[3, 16, 32], [3, 32, 8], [3, 16, 8]], ["float"] * 3)
    assert product is not None
    assert biased is not None
    assert batched is not None
    assert (product.flop, product.read_bytes, product.written_bytes) == (8192, 4 * (512 + 256), 4 * 128)
    assert (biased.flop, biased.read_bytes, biased.written_bytes) == (8192, 4 * (8 + 512 + 256), 4 * 128)
    assert (batched.flop, batched.written_bytes) == (3 * 8192, 3 * 4 * 128)


def test_a_template_of_a_convolution_has_a_filter_for_each_output() -> None:
    # 2 images of 3 x 8 x 8 by 4 filters of 3 x 3 x 3 to 2 x 4 x 6 x 6: 27 products for each.
    counted = work("triton_tem_fused_convolution_0", [[2, 3, 8, 8], [4, 3, 3, 3], [2, 4, 6, 6]], ["float"] * 3)
    assert counted is not None
    assert counted.flop == 2 * 27 * 2 * 4 * 6 * 6
    grouped = work("triton_tem_fused_convolution_0", [[2, 4, 8, 8], [4, 1, 3, 3], [2, 4, 6, 6]], ["float"] * 3)
    assert grouped is not None
    assert grouped.flop == 2 * 9 * 2 * 4 * 6 * 6


def test_a_template_whose_operands_do_not_fit_is_not_known() -> None:
    assert work("triton_tem_fused_mm_0", [[16, 32], [16, 8], [16, 8]], ["float"] * 3) is None
    assert work("triton_tem_fused_mm_0", [[16, 32], [32, 8], [16, 9]], ["float"] * 3) is None
    assert work("triton_tem_fused_bmm_0", [[3, 16, 32], [2, 32, 8], [3, 16, 8]], ["float"] * 3) is None
    assert work("triton_tem_fused_convolution_0", [[2, 3, 8, 8], [4, 0, 3, 3], [2, 4, 6, 6]], ["float"] * 3) is None
    assert work("triton_tem_fused_mm_0", [[]], ["Scalar"], ["4"]) is None


def test_what_a_compiled_graph_does_its_kernels_tell() -> None:
    assert shipped_models().of("CompiledFunction") is None
