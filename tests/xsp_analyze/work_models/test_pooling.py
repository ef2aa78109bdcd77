"""Pooling and resampling, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

import pytest

from tests.helpers.paper_calls import bytes_of, tensor, work
from xsp_analyze.work_models.call import ModelledWork

_NO = False
_YES = True
_IMAGE = tensor("fp16", 2, 3, 8, 7)  # 336 elements


@pytest.mark.parametrize(
    ("window", "results"),
    [
        (([3, 3], [2, 2], [1, 1], [1, 1], False), 4 * 4),  # of 10 x 9
        (([2], [], [0], [1], False), 4 * 3),  # the stride is the window's size
        (([2], [], [0], [1], True), 4 * 4),  # the last column has a window of its own
        (([3, 3], [1, 1], [0, 0], [2, 2], False), 4 * 3),  # windows reach over 5
        (([2, 2], [3, 3], [1, 1], [1, 1], True), 3 * 3),  # a window that would start behind all is none
    ],
)
def test_windows(window: tuple[object, ...], results: int) -> None:
    assert bytes_of("aten::max_pool2d_with_indices", _IMAGE, *window) == (672, (2 + 8) * 6 * results)


def test_each_element_of_a_window_is_an_operation() -> None:
    pooled = work("aten::avg_pool2d", _IMAGE, [2], [], [0], _NO, _YES, None)
    assert pooled == ModelledWork(0, 6 * 12 * 4, 672, 2 * 6 * 12)
    assert work("aten::avg_pool2d", _IMAGE) is None


def test_backward_reads_gradient_and_indices_and_writes_what_was_pooled() -> None:
    gradient, indices = tensor("fp16", 2, 3, 4, 3), tensor("int64", 2, 3, 4, 3)
    inputs = (gradient, _IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
    assert bytes_of("aten::max_pool2d_with_indices_backward", *inputs) == ((2 + 8) * 72, 672)
    assert bytes_of("aten::avg_pool2d_backward", gradient, _IMAGE, [2]) == (2 * 72, 672)


def test_sizes_that_are_given_or_follow_from_factors() -> None:
    assert bytes_of("aten::adaptive_avg_pool2d", _IMAGE, [1, 1]) == (672, 2 * 6)
    assert bytes_of("aten::upsample_nearest2d", _IMAGE, [16, 14], "2.", "2.") == (672, 2 * 6 * 16 * 14)
    assert bytes_of("aten::upsample_nearest2d", _IMAGE, None, "[2., 1.5]") == (672, 2 * 6 * 16 * 10)
    gradient = tensor("fp16", 2, 3, 16, 14)
    assert bytes_of("aten::upsample_nearest2d_backward", gradient, [16, 14], [2, 3, 8, 7]) == (2 * 6 * 224, 672)
    assert work("aten::adaptive_avg_pool2d", _IMAGE) is None


def test_points_between_elements() -> None:
    # 2 images of 3 channels at 5 x 4 points: 4 corners each, a product and a sum.
    sampled = work("aten::grid_sampler_2d", tensor("fp32", 2, 3, 8, 7), tensor("fp32", 2, 5, 4, 2), 0, 0, _NO)
    assert sampled == ModelledWork(0, 2 * 4 * 120, 4 * (336 + 80), 4 * 120)
