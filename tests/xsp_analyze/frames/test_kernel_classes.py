"""Classes of device activities, by the operators around their launches."""

from __future__ import annotations

import polars as pl
import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.kernels.kernel_classes import communication_names, product_names
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView

_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
_GEMM = "volta_sgemm_64x64_nt"


def _classes(hand: Hand) -> list[tuple[str, str, str | None]]:
    activities = TraceView(hand.build()).all_activities
    return activities.select(pl.col("name", "kernel_class", "collective").cast(pl.String)).rows()


def _operator(hand: Hand, name: str, start: int, duration: int, parent: int | None = None) -> int:
    return hand.span("operator", "operator", name, start, duration, parent_id=parent)


def test_the_innermost_operator_that_says_what_it_launches_decides() -> None:
    hand = Hand()
    hand.run(0)
    backward = _operator(hand, "autograd::engine::evaluate_function: ConvolutionBackward0", 0, 100)
    inner = _operator(hand, "aten::convolution_backward", 10, 80, backward)
    copy = _operator(hand, "aten::copy_", 20, 20, inner)
    unknown = _operator(hand, "my::helper", 50, 30, inner)
    hand.work(_GEMM, 200, 10, launch=12, parent=inner)
    hand.work(_ADD, 210, 10, launch=22, parent=copy)
    hand.work("mystery", 220, 10, launch=55, parent=unknown)
    hand.work("mystery", 230, 10, launch=150)
    assert _classes(hand) == [
        (_GEMM, "convolution", None),
        (_ADD, "copy", None),
        ("mystery", "convolution", None),
        ("mystery", "other", None),
    ]


def test_what_accumulates_gradients_is_what_its_kernels_are_and_the_optimizer_s_step_is_its_own() -> None:
    hand = Hand()
    hand.run(0)
    accumulate = _operator(hand, "torch::autograd::AccumulateGrad", 0, 20)
    foreach = _operator(hand, "aten::_foreach_add_", 30, 20)
    hand.work(_ADD, 200, 10, launch=5, parent=accumulate, phase="backward")
    hand.work(_ADD, 210, 10, launch=35, parent=foreach, phase="optimizer")
    hand.work(_ADD, 220, 10, launch=40, parent=foreach, phase="forward")
    assert [row[1] for row in _classes(hand)] == ["elementwise", "optimizer", "elementwise"]


def test_a_replayed_kernel_is_what_the_operator_that_captured_it_says_not_what_replays() -> None:
    hand = Hand()
    hand.run(0)
    captured = _operator(hand, "aten::linear", 0, 20)
    replayer = _operator(hand, "vllm::unified_attention", 30, 20)
    work = [
        hand.work("mystery", 200 + 10 * i, 10, launch=35, parent=replayer, attribution="graph_replay") for i in range(2)
    ]
    hand.rows["kernels"].append({"span_id": work[0], "captured_in_id": captured})
    assert [row[1] for row in _classes(hand)] == ["matrix product", "other"]


def test_fused_collectives_count_as_communication_in_b03_and_b08() -> None:
    # Two all-reduces of 30 ns each, one of them beside 10 ns of a product: exposed 50.
    hand = Hand()
    hand.run(0)
    name = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
    hand.work(name, 0, 30)
    hand.work(_GEMM, 20, 40, stream_id=8)
    hand.work(name, 70, 30)
    frames = StepView.of(hand.build())
    parts = run(find("B03"), frames).table.row(0, named=True)
    assert (parts["communication_ns"], parts["compute_ns"], parts["exposed_communication_ns"]) == (60, 40, 50)
    operations = run(find("B08"), frames).table
    assert operations["operation"].cast(pl.String).to_list() == ["all_reduce"]


def test_names_alone_tell_communication() -> None:
    names = pl.Series(["multimem_all_reduce_kernel", _GEMM, "ncclDevKernel_SendRecv(ncclWork*)", _GEMM])
    assert sorted(communication_names(names)) == ["multimem_all_reduce_kernel", "ncclDevKernel_SendRecv(ncclWork*)"]


def test_a08_has_the_class_by_the_operator_and_a10_that_by_the_name_both_beside_label_and_full_name() -> None:
    hand = Hand()
    hand.run(0)
    convolution = _operator(hand, "aten::cudnn_convolution", 0, 50)
    hand.work(_GEMM, 200, 10, launch=12, parent=convolution)
    hand.work("Memcpy HtoD (Pageable -> Device)", 220, 10, kind="memcpy")
    frames = StepView.of(hand.build())
    columns = ("kernel_name", "kernel_label", "kernel_class")
    copy = ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", "copy")
    assert run(find("A08"), frames).table.select(columns).rows() == [(_GEMM, "GEMM fp32 64x64 nt", "convolution"), copy]
    assert run(find("A10"), frames).table.select(columns).sort("kernel_name", descending=True).rows() == [
        (_GEMM, "GEMM fp32 64x64 nt", "matrix product"),
        copy,
    ]


def test_products_are_told_with_their_precision_not_what_is_beside_them() -> None:
    fp32 = ["volta_sgemm_64x64_nt", "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, float*)"]
    others = [
        "turing_h1688gemm_128x128_ldg8_stages_32x1_nn",
        "void splitKreduce_kernel<float, float, float>(cublasSplitKParams<float>, float const*)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(float*)",
        _ADD,
    ]
    assert sorted(product_names(pl.Series([*fp32, *others]), "fp32")) == sorted(fp32)
    with_transforms = product_names(pl.Series([*fp32, *others]), "fp32", transforms=True)
    assert sorted(with_transforms) == sorted([*fp32, others[2]])


def test_b17_sums_a_mean_step_by_class() -> None:
    # Of two steps of 100 ns: a product of 30 and 50, a copy of 10 in the second alone. A mean step has 40 and 5.
    hand = Hand()
    hand.run(0)
    for number, start, duration in ((1, 0, 30), (2, 100, 50)):
        hand.step(number, start, 100)
        hand.work(_GEMM, start + 10, duration, launch=start + 5, step=number)
    hand.work("Memcpy HtoD", 170, 10, kind="memcpy", launch=160, step=2)
    trace = hand.build()
    columns = ("kernel_class", "count", "duration_ns", "device_share")
    assert run(find("B17"), StepView.of(trace)).table.select(columns).rows() == [
        ("matrix product", 1.0, 40.0, pytest.approx(40 / 45)),
        ("copy", 0.5, 5.0, pytest.approx(5 / 45)),
    ]
    assert run(find("B17"), StepView.of(trace, "all")).table.select(columns).rows() == [
        ("matrix product", 2, 80, pytest.approx(80 / 90)),
        ("copy", 1, 10, pytest.approx(10 / 90)),
    ]
