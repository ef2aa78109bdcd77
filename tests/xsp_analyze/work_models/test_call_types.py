"""Element types of calls as each framework's profiler writes them."""

from __future__ import annotations

import pytest

from xsp_analyze.work_models.call import Tensor, call_of


@pytest.mark.parametrize(
    ("written", "element", "size"),
    [
        ("float", "fp32", 64), ("c10::BFloat16", "bf16", 32),
        ("f32", "fp32", 64), ("bf16", "bf16", 32), ("f8e4m3fn", "fp8", 16), ("pred", "bool", 16), ("s64", "int64", 128),
        ("float32", "fp32", 64), ("bfloat16", "bf16", 32), ("int64", "int64", 128), ("bool", "bool", 16),
    ],
)  # fmt: skip
def test_types_of_pytorch_xla_and_tensorflow_are_the_same_types(written: str, element: str, size: int) -> None:
    call = call_of("it", "[[2, 8]]", f'["{written}"]')
    assert call is not None
    (tensor,) = call.inputs
    assert isinstance(tensor, Tensor)
    assert (tensor.element_type, tensor.bytes) == (element, size)
