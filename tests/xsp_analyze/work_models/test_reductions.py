"""Reductions, sorts, samples and fills, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

import pytest

from tests.helpers.paper_calls import bytes_of, tensor, work
from xsp_analyze.work_models.call import ModelledWork

_NO = False
_INPUT = tensor("fp32", 8, 4, 5)  # 640 bytes


@pytest.mark.parametrize(
    ("operator", "inputs", "written"),
    [
        ("aten::sum", [[0, 2], False, None], 4 * 4),
        ("aten::sum", [[-1], True, 7], 8 * 32),
        ("aten::sum", [None], 4),
        ("aten::sum", [[], False, None], 4),
        ("aten::max", [1, False], (4 + 8) * 40),
        ("aten::max", [], 4),
        ("aten::argmax", [2, False], 8 * 32),
        ("aten::any", [2, False], 32),
        ("aten::std", [True], 4),
        ("aten::std", [[1], None, False], 4 * 40),
        ("aten::var_mean", [[1], None, False], 2 * 4 * 40),
        ("aten::var_mean", [True], 2 * 4),
        ("aten::norm", ["2."], 4),
        ("aten::norm", ["2.", [0], False], 4 * 20),
        ("aten::topk", [2, 1, True, True], (4 + 8) * 80),
        ("aten::sort", [1, False], (4 + 8) * 160),
        ("aten::multinomial", [3, False, None], 8 * 8 * 4 * 3),
    ],
)
def test_results_are_of_the_dimensions_that_are_left(operator: str, inputs: list[object], written: int) -> None:
    assert bytes_of(operator, _INPUT, *inputs) == (640, written)


def test_integers_are_added_up_in_64_bits() -> None:
    assert bytes_of("aten::sum", tensor("int32", 8, 4), [1], _NO, None) == (128, 8 * 8)
    assert bytes_of("aten::cumsum", tensor("bool", 8, 4), 1, None) == (32, 8 * 32)


def test_the_larger_of_two_is_elementwise() -> None:
    assert work("aten::max", tensor("fp32", 8, 4), tensor("fp32", 4)) == ModelledWork(0, 32, 4 * 36, 4 * 32)


def test_dimensions_that_were_not_recorded_count_as_all() -> None:
    assert bytes_of("aten::sum", _INPUT, None, None, None) == (640, 4)


def test_a_dimension_that_the_input_lacks_is_not_known() -> None:
    assert work("aten::sum", _INPUT, [3], _NO, None) is None


def test_a_fill_writes_and_reads_nothing() -> None:
    assert work("aten::zero_", _INPUT) == ModelledWork(0, 0, 0, 640)
    assert bytes_of("aten::fill_", _INPUT, "1.") == (0, 640)
    assert bytes_of("aten::normal_", _INPUT, "0.", "1.", None) == (0, 640)


@pytest.mark.parametrize(
    ("inputs", "written"),
    [
        ([10, None, None, None, False], 8 * 10),
        ([0, 10, 3, tensor("fp32", 0)], 4 * 4),
        (["0.", "1.", "0.25", None, None, None, False], 4 * 4),
        ([2, 10, 3, None, None, False], 4 * 8),  # 3: c10::ScalarType::Int
    ],
)
def test_a_range_is_as_long_as_its_ends_and_steps_say(inputs: list[object], written: int) -> None:
    assert bytes_of("aten::arange", *inputs) == (0, written)


def test_a_unit_matrix_is_square_unless_told() -> None:
    assert bytes_of("aten::eye", 5, None, None, None, _NO) == (0, 4 * 25)
    assert bytes_of("aten::eye", 5, 3, tensor("fp16", 0)) == (0, 2 * 15)
    assert work("aten::eye", None, None, None, None, None) is None
