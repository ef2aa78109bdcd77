"""Quantisation: bytes in one type in, in another out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.modelled_call import BF16, work

if TYPE_CHECKING:
    from pathlib import Path

FP8 = "c10::Float8_e4m3fn"


def moved(
    name: str, shapes: list[list[int]], kinds: list[str], concrete: list[str] | None = None
) -> tuple[int | None, int | None] | None:
    """Bytes read and written."""
    counted = work(name, shapes, kinds, concrete or [])
    return None if counted is None else (counted.read_bytes, counted.written_bytes)


def test_static_scales_are_read_and_dynamic_ones_written() -> None:
    # 128 rows of 256 in two bytes to one byte each.
    static = moved("_C::static_scaled_fp8_quant", [[128, 256], [128, 256], [1]], [FP8, BF16, "float"])
    assert static == (2 * 128 * 256 + 4, 128 * 256)
    shapes = [[128, 256], [128, 256], [128, 1]]
    dynamic = moved("_C::dynamic_per_token_scaled_fp8_quant", shapes, [FP8, BF16, "float"])
    assert dynamic == (2 * 128 * 256, 128 * 256 + 4 * 128)
    kinds = [BF16, FP8, "float"]
    groups = moved("_C::per_token_group_fp8_quant", [[128, 256], [128, 256], [128, 2]], kinds)
    assert groups == (2 * 128 * 256, 128 * 256 + 4 * 128 * 2)


def test_a_residual_is_written_back_where_there_is_one() -> None:
    name, shape, kinds = "_C::rms_norm_dynamic_per_token_quant", [8, 16], [FP8, BF16, BF16, "float", "Scalar", ""]
    shapes: list[list[int]] = [shape, shape, [16], [8, 1], [], []]
    assert moved(name, [*shapes, []], [*kinds, ""]) == (2 * (128 + 16), 128 + 4 * 8)
    assert moved(name, [*shapes, shape], [*kinds, BF16]) == (2 * (256 + 16), 128 + 4 * 8 + 256)


def test_a_norm_with_a_sum_writes_both() -> None:
    # As a vLLM server records it: the sum with the residual is kept, and its norm put out; weights of 2880.
    row, kinds = [8192, 2880], [BF16] * 3
    expected = (2 * (2 * 8192 * 2880 + 2880), 2 * 2 * 8192 * 2880)
    assert moved("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", [row, row, [2880], []], [*kinds, "Scalar"]) == expected
    shapes = [row, row, row, row, [2880], [], []]
    assert moved("aiter::rmsnorm2d_fwd_with_add_ck", shapes, [*kinds, BF16, BF16, "Scalar", "Scalar"]) == expected


def test_the_kernel_of_sage_attention_quantises_queries_keys_and_values() -> None:
    # 24 heads of 768 tokens and 128: as aiter calls it for a diffusion model.
    big: list[int] = [1, 24, 768, 128]
    shapes = [big, big, [1, 24, 3], big, big, [1, 24, 6], big, big, [1, 24, 128]]
    kinds = [BF16, "signed char", "float", BF16, "signed char", "float", BF16, "c10::Float8_e4m3fnuz", "float"]
    each = 24 * 768 * 128
    expected = (3 * 2 * each + 4 * 24 * 128, 3 * each + 4 * 24 * (3 + 6))
    assert moved("sage_quant_kernel_0", shapes, kinds) == expected


def test_a_type_is_told_by_its_number() -> None:
    shapes: list[list[int]] = [[10, 10], [], [], []]
    kinds = ["float", "Scalar", "Scalar", "Scalar"]
    for number, size in (("12", 1), ("13", 1), ("14", 4)):
        assert moved("aten::quantize_per_tensor", shapes, kinds, ["", "0.1", "0", number]) == (400, 100 * size)
    assert moved("aten::quantize_per_tensor", shapes, kinds) is None
    assert moved("aten::quantize_per_tensor", shapes, kinds, ["", "0.1", "0", "99"]) is None
    assert moved("aten::dequantize", [[10, 10]], ["c10::quint8"]) == (100, 400)


def test_fake_quantisation_keeps_the_type_and_may_write_a_mask() -> None:
    shapes: list[list[int]] = [[10, 10], [1], [1], [], []]
    kinds = ["float", "float", "int", "Scalar", "Scalar"]
    assert moved("aten::fake_quantize_per_tensor_affine", shapes, kinds) == (400 + 4 + 4, 400)
    cached = "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    assert moved(cached, shapes, kinds) == (400 + 4 + 4, 400 + 100)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*will be removed in a future PyTorch release:UserWarning")
def test_pytorch_records_what_the_models_read(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415 (only where it is there)

    image = torch.rand(10, 10)
    with torch.profiler.profile(record_shapes=True) as profile:
        quantised = torch.quantize_per_tensor(image, 0.1, 0, torch.quint8)
        quantised.dequantize()
        torch.fake_quantize_per_tensor_affine(image, 0.1, 0, 0, 255)
        torch.fake_quantize_per_channel_affine(image, torch.ones(10), torch.zeros(10, dtype=torch.int32), 0, 0, 255)
    profile.export_chrome_trace(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    calls = {e["name"]: e["args"] for e in events if e.get("cat") == "cpu_op"}
    counted = {
        name: moved(name, args["Input Dims"], args["Input type"], args["Concrete Inputs"])
        for name, args in calls.items()
        if "quantize" in name and "cachemask" not in name and not name.endswith("self")
    }
    assert counted == {
        "aten::quantize_per_tensor": (400, 100),
        "aten::dequantize": (100, 400),
        "aten::fake_quantize_per_tensor_affine": (400, 400),
        "aten::fake_quantize_per_channel_affine": (400 + 40 + 40, 400),
    }
