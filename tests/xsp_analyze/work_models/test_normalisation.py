"""Normalisation and softmax, worked out by hand; what real calls write: `test_memory_bound`."""

from __future__ import annotations

import pytest

from tests.helpers.paper_calls import bytes_of, tensor
from xsp_analyze.work_models.call import Tensor

_YES = True
_IMAGE = tensor("fp16", 2, 64, 8, 8)  # 8192 elements
_OF_CHANNELS = tensor("fp32", 64)


def test_statistics_of_rows_are_written_in_fp32() -> None:
    # 10 rows of 64 in bf16; weight and bias of 64; mean and reciprocal deviation of each row.
    weight = tensor("bf16", 64)
    assert bytes_of("aten::native_layer_norm", tensor("bf16", 2, 5, 64), [64], weight, weight, 1e-5) == (
        2 * (640 + 128),
        2 * 640 + 2 * 4 * 10,
    )


def test_backward_writes_the_gradients_that_are_needed() -> None:
    # No gradient depends on the bias: it is not read, as other tools count it too.
    rows, statistic, weight = tensor("fp32", 10, 64), tensor("fp32", 10, 1), tensor("fp32", 64)
    read = 4 * (2 * 640 + 2 * 10 + 64)
    for needed, written in (([True] * 3, 640 + 128), ([True, False, False], 640), (None, 640 + 128)):
        arguments = (rows, rows, [64], statistic, statistic, weight, weight, needed)
        assert bytes_of("aten::native_layer_norm_backward", *arguments) == (read, 4 * written)


@pytest.mark.parametrize(("training", "written"), [(True, 2 * 8192 + 4 * 4 * 64), (False, 2 * 8192)])
def test_batch_statistics_are_written_in_training_alone(training: bool, written: int) -> None:  # noqa: FBT001
    inputs = (_IMAGE, *[_OF_CHANNELS] * 4, training, 0.1, 1e-5)
    assert bytes_of("aten::cudnn_batch_norm", *inputs) == (2 * 8192 + 4 * 4 * 64, written)


def test_batch_norm_backward_reads_the_input_and_its_gradient() -> None:
    # Of running statistics nothing is read: what training normalised by are the saved ones.
    inputs = (_IMAGE, _IMAGE, *[_OF_CHANNELS] * 5, 1e-5)
    expected = (2 * 2 * 8192 + 3 * 4 * 64, 2 * 8192 + 2 * 4 * 64)
    assert bytes_of("aten::cudnn_batch_norm_backward", *inputs) == expected
    assert bytes_of("aten::miopen_batch_norm_backward", *inputs) == expected


def test_a_residual_that_is_added_is_written_too() -> None:
    rows, weight = tensor("bf16", 10, 64), tensor("bf16", 64)
    assert bytes_of("_C::rms_norm", rows, rows, weight, 1e-6) == (2 * (640 + 64), 2 * 640)
    assert bytes_of("_C::fused_add_rms_norm", rows, rows, weight, 1e-6) == (2 * (1280 + 64), 2 * 1280)


def test_fused_rms_norm_backward() -> None:
    rows = tensor("fp32", 10, 64)
    inputs = (rows, rows, [64], tensor("fp32", 10, 1), tensor("fp32", 64), [True, True])
    assert bytes_of("aten::_fused_rms_norm_backward", *inputs) == (4 * (1280 + 10 + 64), 4 * (640 + 64))


def test_softmax_may_widen_what_it_writes() -> None:
    assert bytes_of("aten::_softmax", tensor("fp16", 8, 4), 1, _YES) == (2 * 32, 4 * 32)
    assert bytes_of("aten::softmax", tensor("fp16", 8, 4), 1, 7) == (2 * 32, 8 * 32)  # 7: c10::ScalarType::Double
    assert bytes_of("aten::softmax", Tensor((8, 4), "fp16", (0, 1)), 1, None) == (2 * 4, 2 * 32)
