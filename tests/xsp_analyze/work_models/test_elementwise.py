"""Elementwise operators, activations and losses, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

import pytest

from tests.helpers.paper_calls import bytes_of, tensor, work
from xsp_analyze.work_models.call import ModelledWork, Tensor

_YES = True


def test_a_smaller_operand_counts_its_own_bytes() -> None:
    assert work("aten::add", tensor("fp32", 8, 4), tensor("fp32", 4), 1) == ModelledWork(0, 32, 4 * (32 + 4), 4 * 32)


def test_what_was_expanded_is_read_once_and_written_in_full() -> None:
    expanded = Tensor((8, 4), "fp16", (0, 1))
    assert bytes_of("aten::mul", expanded, tensor("fp16", 8, 1)) == (2 * (4 + 8), 2 * 32)
    assert bytes_of("aten::neg", expanded) == (2 * 4, 2 * 32)


def test_operands_that_cannot_be_broadcast_are_not_known() -> None:
    assert work("aten::add", tensor("fp32", 8, 4), tensor("fp32", 5), 1) is None


def test_in_place_the_first_operand_is_read_and_written() -> None:
    assert bytes_of("aten::add_", tensor("bf16", 8, 4), tensor("fp32", 4), 1) == (2 * 32 + 4 * 4, 2 * 32)


def test_what_the_caller_gives_to_write_to_is_not_read() -> None:
    out = tensor("fp64", 8, 4)
    assert bytes_of("aten::mul", tensor("fp32", 8, 4), tensor("fp32", 4), out) == (4 * 36, 8 * 32)


def test_an_empty_tensor_to_write_to_is_made_large_enough() -> None:
    assert bytes_of("aten::abs", tensor("fp32", 8, 4), tensor("fp32", 0)) == (4 * 32, 4 * 32)


@pytest.mark.parametrize(
    ("operator", "operands", "element_bytes"),
    [
        ("aten::mul", [tensor("fp16", 8), tensor("bf16", 8)], 4),
        ("aten::mul", [tensor("int64", 8), tensor("fp16", 8)], 2),
        ("aten::mul", [tensor("fp16", 8), tensor("fp32")], 2),  # without dimensions, of the same category
        ("aten::mul", [tensor("int8", 8), tensor("fp16")], 2),
        ("aten::mul", [tensor("int8", 8), "2."], 4),  # as the profiler writes a float
        ("aten::mul", [tensor("fp16", 8), "2."], 2),
        ("aten::mul", [tensor("uint8", 8), tensor("int8", 8)], 2),
        ("aten::mul", [tensor("complex64", 8), tensor("fp64", 8)], 16),
        ("aten::div", [tensor("int64", 8), tensor("int64", 8)], 4),
        ("aten::sqrt", [tensor("bool", 8)], 4),
        ("aten::lt", [tensor("fp64", 8), tensor("fp64", 8)], 1),
        ("aten::where", [tensor("bool", 8), tensor("fp16", 1), "0."], 2),
    ],
)
def test_results_are_of_the_type_that_torch_promotes_to(
    operator: str, operands: list[object], element_bytes: int
) -> None:
    assert bytes_of(operator, *operands)[1] == 8 * element_bytes


def test_a_loss_is_one_element_unless_it_is_not_reduced() -> None:
    each, target = tensor("fp32", 8, 4), tensor("fp32", 8, 4)
    assert work("aten::mse_loss", each, target, 1) == ModelledWork(0, 3 * 32, 2 * 128, 4)
    assert bytes_of("aten::mse_loss", each, target, 0) == (2 * 128, 128)


def test_of_scores_a_loss_reads_those_of_the_targets() -> None:
    # 8 rows of 100 classes: 8 scores of 2 bytes, 8 targets of 8; the loss and the total weight.
    assert bytes_of("aten::nll_loss_forward", tensor("fp16", 8, 100), tensor("int64", 8), None, 1) == (16 + 64, 4)
    gradient = (tensor("fp16"), tensor("fp16", 8, 100), tensor("int64", 8), None, 1, -100, tensor("fp16"))
    assert bytes_of("aten::nll_loss_backward", *gradient) == (2 + 64 + 2, 2 * 800)


def test_a_gated_activation_reads_two_halves() -> None:
    assert work("aten::glu", tensor("bf16", 8, 64), -1) == ModelledWork(0, 3 * 512, 1024, 512)
    gated = work("_C::silu_and_mul", tensor("bf16", 8, 32), tensor("bf16", 8, 64))
    assert gated == ModelledWork(0, 3 * 512, 1024, 512)


def test_dropout_writes_its_mask_and_backward_reads_it() -> None:
    assert bytes_of("aten::native_dropout", tensor("fp32", 8, 4), 0.5, _YES) == (128, 128 + 32)
    gradient = bytes_of("aten::native_dropout_backward", tensor("fp32", 8, 4), tensor("bool", 8, 4), 2.0)
    assert gradient == (128 + 32, 128)
