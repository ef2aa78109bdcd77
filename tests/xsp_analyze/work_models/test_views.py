"""Views, copies and padding, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

import pytest

from tests.helpers.paper_calls import bytes_of, tensor, work
from xsp_analyze.frames.operators.modelled_calls import is_view
from xsp_analyze.work_models.call import NOTHING, ModelledWork, Tensor

_NO = False


@pytest.mark.parametrize("operator", ["view", "expand", "detach", "contiguous", "to", "empty_strided", "item", "zeros"])
def test_operators_that_launch_nothing_do_nothing(operator: str) -> None:
    assert is_view(f"aten::{operator}")
    assert work(f"aten::{operator}", tensor("fp32", 8, 4)) == NOTHING


def test_a_copy_may_convert_and_broadcast() -> None:
    assert work("aten::copy_", tensor("bf16", 8, 4), tensor("fp32", 8, 4), _NO) == ModelledWork(0, 0, 128, 64)
    assert bytes_of("aten::copy_", tensor("bf16", 8, 4), Tensor((8, 4), "fp32", (0, 1)), _NO) == (16, 64)
    assert not is_view("aten::copy_")


def test_tensors_end_to_end_are_read_and_written_once() -> None:
    assert bytes_of("aten::cat", [tensor("fp16", 8, 4), tensor("fp16", 2, 4)], 0) == (80, 80)


def test_padding_is_written_not_read() -> None:
    # From the last dimension: 4 + 1 + 2, then 8 + 0 + 1.
    assert bytes_of("aten::constant_pad_nd", tensor("fp32", 3, 8, 4), [1, 2, 0, 1], "0.") == (4 * 96, 4 * 3 * 9 * 7)
    assert work("aten::constant_pad_nd", tensor("fp32", 3, 8, 4)) is None
