"""Products: flop and bytes worked out on paper, and as torch counts them."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.paper_calls import bytes_of, flop_of, tensor, work
from xsp_analyze.work_models.call import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fp32(*shape: int) -> Tensor:
    return tensor("fp32", *shape)


def bf16(*shape: int) -> Tensor:
    return tensor("bf16", *shape)


@pytest.mark.parametrize(
    ("name", "inputs", "flop", "read", "written"),
    [
        # 2 a multiply-add; 4 bytes an element of what is read, then of what is written.
        ("aten::mm", [fp32(3, 4), fp32(4, 5)], 2 * 60, 4 * 32, 4 * 15),
        ("aten::mm", [fp32(3, 4), fp32(4, 5), fp32(3, 5)], 2 * 60, 4 * 32, 4 * 15),  # the third is `out=`
        ("aten::addmm", [fp32(5), fp32(3, 4), fp32(4, 5), 1, 1], 2 * 60, 4 * 37, 4 * 15),
        ("aten::addmm", [fp32(5), fp32(3, 4), fp32(4, 5), 1, 1, fp32(3, 5)], 2 * 60, 4 * 37, 4 * 15),
        ("aten::_addmm_activation", [fp32(5), fp32(3, 4), fp32(4, 5), 1, 1, True], 2 * 60, 4 * 37, 4 * 15),
        ("_rocm_C::wvSplitK", [bf16(5, 4), bf16(3, 4), bf16(5), 304], 2 * 60, 2 * 37, 2 * 15),
        ("aten::bmm", [fp32(2, 3, 4), fp32(2, 4, 5)], 2 * 120, 4 * 64, 4 * 30),
        ("aten::baddbmm", [fp32(2, 3, 5), fp32(2, 3, 4), fp32(2, 4, 5), 1, 1], 2 * 120, 4 * 94, 4 * 30),
        ("aten::addbmm", [fp32(3, 5), fp32(2, 3, 4), fp32(2, 4, 5), 1, 1], 2 * 120, 4 * 79, 4 * 15),
        ("aten::mv", [fp32(3, 4), fp32(4)], 2 * 12, 4 * 16, 4 * 3),
        ("aten::addmv", [fp32(3), fp32(3, 4), fp32(4), 1, 1], 2 * 12, 4 * 19, 4 * 3),
        ("aten::dot", [fp32(4), fp32(4)], 2 * 4, 4 * 8, 4),
        ("aten::matmul", [fp32(4), fp32(4, 5)], 2 * 20, 4 * 24, 4 * 5),
        ("aten::matmul", [fp32(7, 3, 4), fp32(4)], 2 * 84, 4 * 88, 4 * 21),
        # batches 7 x 1 and 2 are broadcast to 7 x 2
        ("aten::matmul", [fp32(7, 1, 3, 4), fp32(2, 4, 5)], 2 * 14 * 60, 4 * (84 + 40), 4 * 14 * 15),
        ("aten::linear", [fp32(2, 3, 4), fp32(5, 4), fp32(5)], 2 * 120, 4 * (24 + 20 + 5), 4 * 30),
        ("aten::linear", [fp32(2, 3, 4), fp32(4)], 2 * 24, 4 * 28, 4 * 6),
        ("vllm::rocm_unquantized_gemm", [bf16(6, 4), bf16(5, 4), bf16(5)], 2 * 120, 2 * 49, 2 * 30),
    ],
)
def test_products_of_plain_matrices(name: str, inputs: list[object], flop: int, read: int, written: int) -> None:
    assert (flop_of(name, *inputs), bytes_of(name, *inputs)) == (flop, (read, written))


def test_a_factor_that_was_expanded_is_read_once() -> None:
    expanded = Tensor((8, 4, 5), "fp32", (0, 5, 1))
    assert bytes_of("aten::bmm", fp32(8, 3, 4), expanded) == (4 * (96 + 20), 4 * 120)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::mm", [fp32(3, 4), fp32(5, 6)]),
        ("aten::matmul", [fp32(3, 3, 4), fp32(2, 4, 5)]),
        ("aten::matmul", [fp32(), fp32(2, 4)]),
        ("aten::linear", [fp32(3, 4), fp32(5, 6)]),
        ("aten::linear", [fp32(3, 4), None]),
        ("aten::linear_backward", [fp32(6, 4), fp32(6, 5), fp32(5, 4), None]),  # torch before 2.1: no mask
        ("_C::gptq_marlin_gemm", [bf16(6, 64), tensor("int32", 4, 256)]),  # nothing tells how many columns
    ],
)
def test_what_does_not_fit_is_unknown(name: str, inputs: list[object]) -> None:
    assert work(name, *inputs) is None


def test_a_complex_multiply_add_is_four_real_ones() -> None:
    factors = tensor("complex64", 3, 4), tensor("complex64", 4, 5)
    assert (flop_of("aten::mm", *factors), bytes_of("aten::mm", *factors)) == (8 * 60, (8 * 32, 8 * 15))


def test_an_output_type_that_is_asked_for_is_what_is_written() -> None:
    # 3 x 5 elements of FP32 (number 6 of c10::ScalarType), as a type and as an `out=`.
    assert bytes_of("aten::mm", bf16(3, 4), bf16(4, 5), 6) == (2 * 32, 4 * 15)
    assert bytes_of("aten::mm", bf16(3, 4), bf16(4, 5), fp32(3, 5)) == (2 * 32, 4 * 15)


def test_fp8_products_are_computed_in_fp8_and_written_as_asked() -> None:
    fp8 = tensor("fp8", 16, 32), tensor("fp8", 32, 48)
    modelled = work("aten::_scaled_mm", *fp8, fp32(), fp32(), None, None, 15)
    assert modelled is not None
    assert (modelled.flop, modelled.precision) == (2 * 16 * 32 * 48, "fp8")
    assert (modelled.read_bytes, modelled.written_bytes) == (16 * 32 + 32 * 48 + 8, 2 * 16 * 48)
    cutlass = work("_C::cutlass_scaled_mm", bf16(16, 48), *fp8, fp32(16, 1), fp32(1, 48), bf16(48))
    assert cutlass is not None
    assert (cutlass.flop, cutlass.precision) == (2 * 16 * 32 * 48, "fp8")
    assert (cutlass.read_bytes, cutlass.written_bytes) == (512 + 1536 + 4 * 64 + 2 * 48, 2 * 768)
    rows = work("fbgemm::f8f8bf16_rowwise", fp8[0], tensor("fp8", 48, 32), fp32(16), fp32(48))
    assert rows is not None
    assert (rows.flop, rows.read_bytes, rows.written_bytes) == (2 * 16 * 32 * 48, 512 + 1536 + 4 * 64, 2 * 768)
    deep = work("vllm::fp8_gemm_nt_op", fp8[0], fp32(16, 1), tensor("fp8", 48, 32), fp32(1, 1), bf16(16, 48))
    assert deep is not None
    assert (deep.flop, deep.precision, deep.written_bytes) == (2 * 16 * 32 * 48, "fp8", 2 * 768)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::_scaled_mm", [tensor("uint8", 16, 32), tensor("uint8", 32, 48), None, None, None, None, 15]),
        ("_C::cutlass_scaled_fp4_mm", [bf16(16, 48), tensor("uint8", 16, 32), tensor("uint8", 48, 32)]),
        ("aiter::gemm_a4w4_blockscale", [tensor("uint8", 16, 32), tensor("uint8", 48, 32), None, None, bf16(16, 48)]),
        ("fbgemm::f4f4bf16", [tensor("uint8", 16, 32), tensor("uint8", 48, 32)]),
    ],
)
def test_fp4_lies_two_in_a_byte(name: str, inputs: list[object]) -> None:
    # 32 bytes of a row are 64 values; bytes are read as they lie.
    modelled = work(name, *inputs)
    assert modelled is not None
    assert (modelled.flop, modelled.precision) == (2 * 16 * 64 * 48, "fp4")
    assert (modelled.read_bytes, modelled.written_bytes) == (16 * 32 + 32 * 48, 2 * 16 * 48)


def test_int8_products_give_int32() -> None:
    modelled = work("aten::_int_mm", tensor("int8", 3, 4), tensor("int8", 4, 5))
    assert modelled is not None
    assert (modelled.flop, modelled.read_bytes, modelled.written_bytes, modelled.precision) == (120, 32, 60, "int8")
    cutlass = work("_C::cutlass_scaled_mm", bf16(3, 5), tensor("int8", 3, 4), tensor("int8", 4, 5))
    assert cutlass is not None
    assert (cutlass.flop, cutlass.precision) == (120, "int8")


@pytest.mark.parametrize(
    ("name", "inputs", "read"),
    [
        # 6 rows of 64 by 64 x 128 weights of 4 bits, 4096 bytes, as each kernel packs and scales them
        ("aten::_weight_int4pack_mm", [bf16(6, 64), tensor("int32", 16, 1, 32, 2), 32, bf16(2, 128, 2)], 2 * 512),
        ("_C::awq_gemm", [bf16(6, 64), tensor("int32", 64, 16), bf16(2, 128), tensor("int32", 2, 16), 8], 512 + 128),
        ("_C::gptq_marlin_gemm", [bf16(6, 64), tensor("int32", 4, 256), bf16(2, 128), None, 7, 6, 128, 64], 512),
        ("_C::gptq_marlin_gemm", [bf16(6, 64), None, tensor("int32", 4, 256), bf16(128), bf16(2, 128)], 256 + 512),
        ("_C::gptq_marlin_gemm", [bf16(6, 64), bf16(6, 128), tensor("int32", 4, 256), None, bf16(2, 128)], 512),
        ("_C::machete_mm", [bf16(6, 64), tensor("int32", 8, 128), 99, None, bf16(2, 128)], 512),
        ("fbgemm::bf16i4bf16_rowwise", [bf16(6, 64), tensor("int8", 128, 32), bf16(2, 128), bf16(2, 128)], 2 * 512),
        ("bitsandbytes::gemv_4bit", [bf16(6, 64), tensor("uint8", 4096, 1), [128, 64], fp32(128), fp32(16)], 576),
    ],
)
def test_weights_alone_of_4_bits_are_computed_in_the_features_type(name: str, inputs: list[object], read: int) -> None:
    modelled = work(name, *inputs)
    assert modelled is not None
    assert (modelled.flop, modelled.precision) == (2 * 6 * 64 * 128, None)
    assert (modelled.read_bytes, modelled.written_bytes) == (2 * 6 * 64 + 4096 + read, 2 * 6 * 128)


def test_weights_alone_of_8_bits() -> None:
    modelled = work("aten::_weight_int8pack_mm", bf16(6, 64), tensor("int8", 128, 64), bf16(128))
    assert modelled is not None
    assert (modelled.flop, modelled.read_bytes) == (2 * 6 * 64 * 128, 768 + 8192 + 256)
    assert flop_of("_C::gptq_marlin_gemm", bf16(6, 64), tensor("int32", 4, 512), bf16(1, 128)) == 2 * 6 * 64 * 128


def test_groups_share_the_rows() -> None:
    # 10 rows over 3 weights of 4 x 5: every row is multiplied by one of them.
    offsets = tensor("int32", 3)
    modelled = work("aten::_grouped_mm", bf16(10, 4), bf16(3, 4, 5), offsets, None, None)
    assert modelled is not None
    assert (modelled.flop, modelled.read_bytes, modelled.written_bytes) == (2 * 10 * 4 * 5, 2 * (40 + 60) + 12, 2 * 50)
    # the gradient of the weights: 10 deep, split in 3, each 4 x 5
    split_depth = work("aten::_grouped_mm", bf16(4, 10), bf16(10, 5), offsets, None, None)
    assert split_depth is not None
    assert (split_depth.flop, split_depth.written_bytes) == (2 * 10 * 4 * 5, 2 * 3 * 20)
    # columns split: each of 3 matrices of 6 x 4 by its share of 10 columns
    split_columns = work("aten::_grouped_mm", bf16(3, 6, 4), bf16(4, 10), offsets, None, None)
    assert split_columns is not None
    assert (split_columns.flop, split_columns.written_bytes) == (2 * 6 * 4 * 10, 2 * 60)
    assert flop_of("aten::_grouped_mm", bf16(3, 6, 4), bf16(3, 4, 5), None, None, None) == 2 * 3 * 6 * 4 * 5
    assert work("aten::_grouped_mm", bf16(10, 4), bf16(3, 6, 5), offsets, None, None) is None


def test_groups_of_scaled_products() -> None:
    fp8 = [tensor("fp8", 10, 4), tensor("fp8", 3, 4, 5), fp32(10), fp32(3, 5), tensor("int32", 3), None, None, 15]
    modelled = work("aten::_scaled_grouped_mm", *fp8)
    assert modelled is not None
    assert (modelled.flop, modelled.precision) == (2 * 10 * 4 * 5, "fp8")
    assert (modelled.read_bytes, modelled.written_bytes) == (40 + 60 + 4 * 25 + 12, 2 * 50)
    fp4 = [tensor("uint8", 10, 4), tensor("uint8", 3, 4, 5), *fp8[2:]]
    assert flop_of("aten::_scaled_grouped_mm", *fp4) == 2 * 10 * 8 * 5
    stacked = [tensor("fp8", 10, 4), tensor("fp8", 3, 5, 4), fp32(10), fp32(3, 5), tensor("int64", 3)]
    assert flop_of("fbgemm::f8f8bf16_rowwise_grouped_stacked", *stacked) == 2 * 10 * 4 * 5


def test_2_of_4_counts_the_half_that_is_done() -> None:
    # 32 x 64 of which 32 x 32 are kept, by 64 x 10: 32 * 32 * 10 multiply-adds.
    values, metadata = bf16(32, 32), tensor("int16", 32, 4)
    modelled = work("aten::_sparse_semi_structured_mm", values, metadata, bf16(64, 10))
    assert modelled is not None
    assert (modelled.flop, modelled.read_bytes) == (2 * 32 * 32 * 10, 2 * 1024 + 2 * 128 + 2 * 640)
    assert modelled.written_bytes == 2 * 320
    assert flop_of("aten::_sparse_semi_structured_linear", bf16(10, 64), values, metadata, None) == 2 * 32 * 32 * 10
    # cuSPARSELt's buffer of 32 x 64 in BF16: 9 sixteenths of 2048 elements
    assert flop_of("aten::_cslt_sparse_mm", bf16(32, 36), bf16(64, 10), None, None, None) == 2 * 32 * 32 * 10
    int8 = tensor("int8", 32, 40), tensor("int8", 64, 10)
    assert flop_of("aten::_cslt_sparse_mm", *int8, None, None, None) == 2 * 32 * 32 * 10


def test_gradients_as_the_mask_asks() -> None:
    features, gradient, weight = fp32(6, 4), fp32(6, 5), fp32(5, 4)
    modelled = work("aten::linear_backward", features, gradient, weight, [True, True, True])
    assert modelled is not None
    assert (modelled.flop, modelled.vector_flop) == (2 * 2 * 120, 30)
    assert (modelled.read_bytes, modelled.written_bytes) == (4 * (24 + 30 + 20), 4 * (24 + 20 + 5))
    assert bytes_of("aten::linear_backward", features, gradient, weight, [False, True, False]) == (4 * 54, 4 * 20)
    assert flop_of("aten::matmul_backward", fp32(2, 3, 5), fp32(2, 3, 4), fp32(4, 5), [True, False]) == 2 * 120
    assert flop_of("aten::matmul_backward", fp32(), fp32(4), fp32(4), [True, True]) == 2 * 2 * 4


@pytest.mark.torch
@pytest.mark.slow
def test_products_are_as_torch_counts_them() -> None:
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")

    def made(*shape: int) -> Any:  # noqa: ANN401
        return torch.randn(*shape, device="meta", requires_grad=True)

    linear: Any = torch.nn.functional.linear
    runs: list[tuple[Any, int]] = [
        (lambda: linear(made(2, 7, 5), made(3, 5), made(3)), 3),
        (lambda: made(2, 3, 4, 5) @ made(5, 6), 3),
        (lambda: made(2, 3, 4, 5) @ made(3, 5, 6), 3),
        (lambda: torch.baddbmm(made(2, 3, 4), made(2, 3, 5), made(2, 5, 4)), 3),
        (lambda: torch.einsum("bij,bkj->bik", made(2, 3, 4), made(2, 5, 4)), 3),
    ]
    for run, products in runs:  # forward, and a product for each gradient
        with dispatched.Recorder() as recorder:
            run().sum().backward()
        assert len(recorder.counted) == products
        assert [flop for _, flop in recorder.counted] == [dispatched.work_of(call).flop for call, _ in recorder.counted]


@pytest.mark.torch
@pytest.mark.slow
def test_products_that_ran_are_as_torch_counts_them(tmp_path: Path) -> None:
    """By the profiler's record of them, of FP8 too; of operators that torch does not count, by the products inside."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    fp8 = torch.zeros(16, 32).to(torch.float8_e4m3fn), torch.zeros(48, 32).to(torch.float8_e4m3fn).t()
    one, columns = torch.tensor(1.0), torch.ones(6, 3)
    runs: dict[str, Any] = {
        "aten::addmm": lambda: torch.addmm(torch.ones(3), torch.ones(4, 6), columns),
        "aten::linear": lambda: torch.nn.functional.linear(torch.ones(2, 4, 6), columns.t(), torch.ones(3)),
        "aten::matmul": lambda: torch.ones(5, 1, 4, 6) @ torch.ones(2, 6, 3),
        "aten::bmm": lambda: torch.bmm(torch.ones(2, 4, 6), columns.expand(2, 6, 3)),
        "aten::_scaled_mm": lambda: torch._scaled_mm(*fp8, one, one, out_dtype=torch.bfloat16),
    }
    for name, run in runs.items():
        with dispatched.flop_counter.FlopCounterMode(display=False) as counted:
            output = run()
        calls = [call for call in dispatched.profiled(run, tmp_path) if call.name == name]
        modelled = [dispatched.work_of(call) for call in calls]
        assert [(w.flop, w.written_bytes) for w in modelled if w] == [(counted.get_total_flops(), output.nbytes)]


@pytest.mark.torch
@pytest.mark.slow
def test_operators_without_a_model_of_their_own_hold_products_that_have(tmp_path: Path) -> None:
    """The equation of `einsum` is not recorded; `bilinear` multiplies for each output: 4 rows of 3 x 5, then by 5."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")

    def inner(run: Callable[[], object]) -> int:
        works = map(dispatched.work_of, dispatched.profiled(run, tmp_path))
        return sum(work.flop for work in works if work)

    assert inner(lambda: torch.einsum("bij,bkj->bik", torch.ones(2, 3, 4), torch.ones(2, 5, 4))) == 2 * 2 * 3 * 4 * 5
    bilinear = torch.nn.functional.bilinear
    modelled = inner(lambda: bilinear(torch.ones(4, 3), torch.ones(4, 5), torch.ones(7, 3, 5)))
    assert modelled == 7 * 2 * (4 * 3 * 5 + 4 * 5)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("family", ["products", "convolutions", "recurrent"])
def test_inputs_stand_where_torch_s_schemas_put_them(family: str) -> None:
    """Every role of a tensor is an argument that takes one in an overload of the operator, every other one does not."""
    schemas_of = pytest.importorskip("torch")._C._jit_get_schemas_for_operator
    text = resources.files("xsp_analyze.work_models").joinpath(f"models/{family}.toml").read_text(encoding="utf-8")
    for model in tomllib.loads(text)["model"]:
        for name in model["operators"]:
            schemas = schemas_of(name) if name.startswith("aten::") else []
            for role, at in model.get("operands", {}).items() if schemas else ():
                kinds = {str(s.arguments[at].type) for s in schemas if at < len(s.arguments)}
                names = {s.arguments[at].name for s in schemas if at < len(s.arguments)}
                if not kinds:
                    assert (name[-1], role) == ("_", "output"), (name, role)  # written in place: there is no `out=`
                elif role in _NO_TENSORS:
                    assert any(each.endswith(_NO_TENSORS[role]) for each in names), (name, role, names)
                else:
                    assert any("Tensor" in kind for kind in kinds), (name, role, kinds)


_NO_TENSORS = {
    **{role: role for role in ("stride", "padding", "dilation", "groups", "transposed", "output_padding")},
    "output_type": "out_dtype",
    "mask": "mask",
    "bidirectional": "bidirectional",
}
