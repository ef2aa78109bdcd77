"""B23, B24 and the rooflines of modelled work, on traces whose answers are worked out on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import Hand
from tests.helpers.shaped_trace import shaped
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.kernels.measured_work import kernel_work
from xsp_analyze.service import Answers, roof_summary
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


about = pytest.approx


def rows(trace: Trace, identity: str, *columns: str, steps: str | None = "all") -> list[tuple[Any, ...]]:
    table = run(find(identity), StepView.of(trace, steps)).table
    return table.select(columns).rows()


def test_operators_come_by_the_time_to_gain() -> None:
    # Two products of 12 Mflop: 12 us each at 1 TFLOP/s, 4.4 us at 100 GB/s, of 24 us. The ReLU: 4 us of 16, by memory.
    columns = ("operator", "shapes", "dtypes", "count", "device_sum_ns", "gain_ns", "roof_ns", "roof_share", "bound")
    assert rows(shaped(), "B23", *columns) == [
        ("aten::mm", "100x200, 200x300", "fp32", 2, 48_000, 24_000.0, 24_000.0, 0.5, "compute"),
        ("aten::relu", "1000x50", "fp32", 1, 16_000, 12_000.0, about(4_000.0), about(0.25), "memory"),
        ("my::op", "1000x50", "fp32", 1, 4_000, None, None, None, None),
    ]
    rates = ("operator", "modelled_flop_per_s", "modelled_byte_per_s", "layers", "operator_class")
    assert rows(shaped(), "B23", *rates)[0] == ("aten::mm", 5e11, 880_000 / 48e-6, "Linear_0", "matrix product")


@pytest.mark.parametrize("steps", [None, "mean", "each", "1"])
def test_a_step_is_as_the_whole_of_one(steps: str | None) -> None:
    columns = ("operator", "count", "gain_ns", "roof_ns")
    assert rows(shaped(), "B23", *columns, steps=steps) == rows(shaped(), "B23", *columns)


def test_without_peaks_no_call_has_a_roof() -> None:
    columns = ("operator", "gain_ns", "roof_share", "bound", "modelled_flop")
    assert set(rows(shaped(peak=None, bandwidth=None, name=None), "B23", *columns)) == {
        ("aten::mm", None, None, None, 24e6),
        ("aten::relu", None, None, None, 0.0),
        ("my::op", None, None, None, None),
    }


def test_products_at_their_peak_over_latency_and_over_the_layers_device_time() -> None:
    # 24 Mflop take 24 us at the peak: of a step of 100 us, and of 48 us of the layer's kernels.
    columns = ("scope", "name", "mfu", "hfu", "model_flop", "peak_ns", "time_ns", "precision", "counted_share")
    assert rows(shaped(), "B24", *columns, steps=None) == [
        ("model", "all products", 0.24, 0.24, 24e6, 24_000.0, 100_000.0, "fp32", 1.0),
        ("layer type", "Linear", 0.5, 0.5, 24e6, 24_000.0, 48_000.0, "fp32", 1.0),
        ("layer", "Linear_0", 0.5, 0.5, 24e6, 24_000.0, 48_000.0, "fp32", 1.0),
    ]


def recomputed() -> Trace:
    """A product of 12 Mflop forward (20 us), once more for its gradient (20 us), and one on the host alone."""
    hand = Hand()
    hand.run(0)
    hand.step(1, 0, 100_000)
    hand.extra["operators"] = []
    for number, phase in enumerate(("forward", "recompute", "forward")):
        at: dict[str, Any] = {"step": 1, "phase": phase}
        call = hand.span("operator", "operator", "aten::mm", 100 + 1_000 * number, 900, thread_id=1, **at)
        described = {"input_shapes": "[[100, 200], [200, 300]]", "input_dtypes": '["float", "float"]'}
        hand.extra["operators"].append({"span_id": call, **described})
        if number < 2:
            hand.work("gemm", 10_000 + 30_000 * number, 20_000, launch=150 + 1_000 * number, parent=call, **at)
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "fp32_flop_per_s": 1e12, "dram_byte_per_s": 1e11})
    return hand.build()


def test_recomputation_is_of_the_hardware_and_not_of_the_model() -> None:
    columns = ("scope", "mfu", "hfu", "model_flop", "hardware_flop")
    assert rows(recomputed(), "B24", *columns, steps=None) == [("model", 0.12, 0.24, 12e6, 24e6)]


def test_rates_are_of_calls_that_launched_something() -> None:
    # Three calls have 36 Mflop, two of them 24 Mflop in 40 us.
    assert rows(recomputed(), "B11", "modelled_flop", "modelled_flop_per_s") == [(36e6, 24e6 / 40e-6)]


def test_the_work_list_counts_only_calls_that_launched_something() -> None:
    assert rows(recomputed(), "B23", "count", "modelled_count", "modelled_flop") == [(2, 2, 24e6)]


def timed(*calls: tuple[str, str, str, int, int]) -> Trace:
    """Calls one after the other: operator, shapes, kernel, its duration, and the step. 1 TFLOP/s and 100 GB/s."""
    hand = Hand()
    hand.run(0)
    for number in sorted({step for *_, step in calls}):
        hand.step(number, 1_000_000 * number, 900_000)
    hand.extra["operators"] = []
    for position, (name, shapes, kernel, duration, step) in enumerate(calls):
        start = 1_000_000 * step + 1_000 * position
        call = hand.span("operator", "operator", name, start, 900, thread_id=1, step=step)
        kinds = str(["float"] * shapes.count("[")).replace("'", '"')
        hand.extra["operators"].append({"span_id": call, "input_shapes": f"[{shapes}]", "input_dtypes": kinds})
        hand.work(kernel, start + 100_000 + 50_000 * position, duration, launch=start + 50, parent=call, step=step)
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "fp32_flop_per_s": 1e12, "dram_byte_per_s": 1e11})
    return hand.build()


_PRODUCT = ("aten::mm", "[100, 200], [200, 300]")  # 12 Mflop: 12 us


def test_a_product_quicker_than_its_peak_is_refused_and_named() -> None:
    trace = timed((*_PRODUCT, "gemm", 5_000, 1), ("aten::relu", "[1000, 50]", "relu", 16_000, 1))
    columns = ("operator", "roof_share", "gain_ns", "modelled_flop", "modelled_count", "above_roof")
    assert rows(trace, "B23", *columns) == [
        ("aten::relu", about(0.25), about(12_000.0), 0.0, 1, None),
        ("aten::mm", None, None, None, 0, None),
    ]
    ledger = run(find("B23"), StepView.of(trace, "all")).ledger.filter(pl.col("kind") == "work_model_refused")
    assert ledger.select("count", "duration_ns").rows() == [(1, 5_000)]
    assert ledger["detail"][0].endswith(": aten::mm")
    assert run(find("A10"), StepView.of(trace, "all")).ledger.filter(pl.col("kind") == "work_model_refused").is_empty()


def test_a_call_that_caches_helped_says_so_and_stands_in_no_sum() -> None:
    # 400,000 bytes take 4 us by memory; of twice as many the second row takes 16.
    trace = timed(("aten::relu", "[1000, 50]", "relu", 2_000, 1), ("aten::relu", "[1000, 100]", "relu", 16_000, 1))
    assert rows(trace, "B23", "roof_share", "above_roof", "gain_ns") == [
        (about(0.5), None, about(8_000.0)),
        (about(2.0), "caches", None),
    ]
    assert rows(trace, "B11", "roof_share", "above_roof", "roof_ns") == [(about(0.5), None, about(8_000.0))]


def test_an_algorithm_with_fewer_flop_says_so_and_counts_no_utilisation() -> None:
    trace = timed((*_PRODUCT, "volta_scudnn_winograd_128x128", 8_000, 1), (*_PRODUCT, "gemm", 24_000, 1))
    [row] = rows(trace, "B24", "mfu", "model_flop", "counted_share", steps="1")
    assert row == (about(12_000 / 900_000), 24e6, about(24 / 32))
    alone = timed((*_PRODUCT, "volta_scudnn_winograd_128x128", 8_000, 1))
    assert rows(alone, "B23", "roof_share", "above_roof", "gain_ns") == [(1.5, "fewer flop", None)]


@pytest.mark.parametrize("call", [("aten::relu", "[1000, 50]", "relu", 400, 1), (*_PRODUCT, "winograd", 1_200, 1)])
def test_nothing_makes_a_device_eight_times_as_fast(call: tuple[str, str, str, int, int]) -> None:
    # 4 us by memory in 0.4 us, and 12 us of products in 1.2 us; twice as long is possible.
    assert rows(timed(call), "B23", "roof_share", "above_roof", "modelled_bytes") == [(None, None, None)]
    [(share, excuse)] = rows(timed((*call[:3], call[3] * 2, 1)), "B23", "roof_share", "above_roof")
    assert (share, excuse) == (about(5), "caches" if call[2] == "relu" else "fewer flop")


@pytest.mark.parametrize("layout_ns", [5_000, 80_000])
def test_the_precision_is_what_the_kernel_tells_that_does_the_products(layout_ns: int, tmp_path: Path) -> None:
    # A convolution in TF32 first lays its operands out anew, in FP32.
    made = KinetoTrace(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}])
    scalars = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    inputs = {"Input Dims": [[1, 256, 64, 64], [256, 256, 3, 3], *[[]] * 5], "Input type": ["float"] * 2 + [""] * 5}
    made.span("cpu_op", "aten::conv2d", 0, 90_000, args={"External id": 1, "Concrete Inputs": scalars, **inputs})
    made.launch("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>", 1_000, 100_000, layout_ns)
    made.launch("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", 10_000, 200_000, 67_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    # 2 x 256 x 64 x 64 x 2304 flop at 156 TFLOP/s.
    assert rows(trace, "B23", "precision", "roof_share") == [
        ("tf32", about(4_831_838_208 / 156e3 / (67_000 + layout_ns)))
    ]


@pytest.mark.parametrize(
    ("device", "row"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", (about(2 * 4096**3 / 13.4e12 / 9e-3), "clock", None)),
        ("Tesla T4", (None, None, None)),
    ],
)
def test_a_geforce_card_may_run_above_its_listed_clock(device: str, row: tuple[Any, ...], tmp_path: Path) -> None:
    made = KinetoTrace(deviceProperties=[{"id": 0, "name": device}])
    made.operator("aten::mm", 0, 90_000, shapes=[[4096, 4096], [4096, 4096]], dtypes=["float", "float"])
    made.launch("volta_sgemm_128x128_nn", 1_000, 100_000, 9_000_000)  # 15.3 TFLOP/s
    trace = convert([made.write(tmp_path / "t.json")], Options())
    assert rows(trace, "B23", "roof_share", "above_roof", "gain_ns") == [row]


@pytest.mark.parametrize(("kernel", "excuse"), [("AllReduce", "switches"), ("AllGather", None)])
def test_switches_may_add_up_for_the_ranks_of_an_all_reduce(tmp_path: Path, kernel: str, excuse: str | None) -> None:
    # Of 1 GiB a rank of eight sends 1.75 GiB in a ring: 4.18 ms by links of 450 GB/s.
    made = KinetoTrace(deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    message = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1 << 29, "Out msg nelems": 1 << 29}
    message |= {"Process Group Name": "0", "Group size": 8}
    made.span("cpu_op", "c10d::allreduce_", 0, 50_000, args={"External id": 1})
    correlation = made.runtime("cudaLaunchKernelExC", 1_000, 5_000)
    made.kernel(f"ncclDevKernel_{kernel}_Sum_bf16", 100_000, 3_900_000, correlation=correlation, args=message)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    share = None if excuse is None else about(1.75 * (1 << 30) / 450e9 / 3.9e-3)
    assert rows(trace, "B11", "roof_share", "above_roof", "gain_ns") == [(share, excuse, None)]


def test_what_stands_in_no_sum_is_of_no_share_either() -> None:
    # The ReLU has 16 of 24 us, and 4 at its roof; of the products 24 of 32 us count.
    relu = ("aten::relu", "[1000, 50]", "relu", 16_000, 1)
    summary = roof_summary(Answers(timed((*_PRODUCT, "winograd", 8_000, 1), relu))) or ""
    assert "run at 25.0\u202f% of what their shapes allow on this device (modelled for 66.7\u202f% of" in summary
    summary = roof_summary(Answers(timed((*_PRODUCT, "winograd", 8_000, 1), (*_PRODUCT, "gemm", 24_000, 1)))) or ""
    assert "MFU is at least 1.33" in summary


def test_a_little_above_the_roof_is_a_matter_of_rates() -> None:
    assert rows(timed((*_PRODUCT, "gemm", 11_800, 1)), "B23", "above_roof", "gain_ns") == [("rates", None)]


def test_time_and_work_of_a_mean_step_are_of_the_same_calls() -> None:
    # Of six steps one has the wide product and takes long, one takes 24 us, the others 16: nothing is trimmed.
    wide = ("aten::mm", "[100, 200], [200, 3000]", "gemm", 400_000, 3)
    others = [(*_PRODUCT, "gemm", 24_000 if step == 6 else 16_000, step) for step in (1, 2, 4, 5, 6)]
    trace = timed(wide, *others)
    columns = ("shapes", "count", "device_sum_ns", "modelled_flop", "roof_share")
    assert rows(trace, "B23", *columns, steps="mean") == [
        ("100x200, 200x3000", about(1 / 6), about(400_000 / 6), about(120e6 / 6), about(0.3)),
        ("100x200, 200x300", about(5 / 6), about(88_000 / 6), about(60e6 / 6), about(60 / 88)),
    ]


def test_what_waits_for_others_has_nothing_to_gain(tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator("record_param_comms", 0, 10_000, shapes=[[64]])
    made.launch("ncclDevKernel_AllReduce", 1_000, 20_000, 5_000)
    made.operator("aten::relu", 50_000, 10_000, shapes=[[64]])
    made.launch("relu", 51_000, 60_000, 5_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    assert rows(trace, "B23", "operator") == [("aten::relu",)]
    assert ("record_param_comms", None) in rows(trace, "B11", "operator", "gain_ns")


def test_what_a_view_launched_itself_is_not_known(tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator("aten::contiguous", 0, 90_000, shapes=[[64, 64]])
    made.launch("copy", 10_000, 200_000, 30_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    columns = ("operator", "device_sum_ns", "gain_ns", "modelled_bytes", "modelled_count")
    assert rows(trace, "B23", *columns) == [("aten::contiguous", 30_000, None, None, 0)]


def test_without_shapes_of_products_there_is_no_utilisation(tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator("aten::mm", 0, 10_000)
    made.launch("gemm", 1_000, 20_000, 5_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    with pytest.raises(XspError, match=r"needs products whose shapes were recorded.*record_shapes=True"):
        rows(trace, "B24", "mfu")


def test_kernels_layers_and_the_model_have_modelled_work_under_their_roofs() -> None:
    moved = ("dram_read_bytes", "dram_write_bytes")
    columns = ("kernel_name", "precision", "flop_count", *moved, "roof_share", "work_basis")
    product = ("kernel of aten::mm", "fp32", 12e6, 320_000.0, 120_000.0, 0.5, "modelled")
    relu = ("kernel of aten::relu", "fp32", 50_000.0, 200_000.0, 200_000.0, 0.25, "modelled")
    assert rows(shaped(), "A09", *columns) == [product, product, relu]
    assert rows(shaped(), "A14", "layer_name", "flop_count", "work_basis") == [
        ("Linear_0", 24e6, "modelled"),
        ("ReLU_0", 50_000.0, "modelled"),
    ]
    assert rows(shaped(), "A12", "layer_name", "flop_count", "dram_read_bytes", "work_basis") == [
        ("Linear_0", 24e6, 640_000.0, "modelled"),
        ("ReLU_0", 50_000.0, 200_000.0, "modelled"),
    ]
    assert rows(shaped(), "A15", "precision", "flop_count", "work_basis") == [("fp32", 24_050_000.0, "modelled")]


def measured(**counters: float) -> Trace:
    """As `shaped`, with these counters of the first product's kernel."""
    trace = shaped()
    first = trace.frame("spans").filter(pl.col("name").cast(pl.String) == "kernel of aten::mm")["span_id"][0]
    metrics = pl.DataFrame(
        [(first, name, value, "flop", "measured by a test") for name, value in counters.items()],
        schema=["span_id", "metric", "value", "unit", "source"],
        orient="row",
    )
    return trace.with_tables({"metrics": metrics})


def test_what_was_measured_goes_before_what_is_modelled() -> None:
    counters = {"flop_count_sp": 13e6, "dram_read_bytes": 400_000.0, "dram_write_bytes": 120_000.0}
    columns = ("flop_count", "dram_read_bytes", "work_basis")
    table = rows(measured(**counters), "A09", *columns)
    assert table[:2] == [(13e6, 400_000.0, "measured"), (12e6, 320_000.0, "modelled")]
    assert rows(measured(**counters), "A12", *columns)[0] == (25e6, 720_000.0, "mixed")
    half = rows(measured(flop_count_sp=13e6), "A09", *columns)
    assert half[0] == (13e6, 320_000.0, "mixed")


def test_kernels_share_the_work_of_their_call_by_time(tmp_path: Path) -> None:
    # A product of 12 Mflop by a kernel of 30 us and one of 10 us.
    made = KinetoTrace()
    made.operator("aten::mm", 0, 90_000, shapes=[[100, 200], [200, 300]])
    made.launch("gemm", 10_000, 200_000, 30_000)
    made.launch("split_k_reduce", 20_000, 240_000, 10_000)
    work = kernel_work(StepView.of(convert([made.write(tmp_path / "t.json")], Options())).of_trace)
    assert work.sort("span_id")["flop_count"].to_list() == [9e6, 3e6]
    assert work["dram_read_bytes"].sum() == 320_000


def test_a_model_without_work_in_fp32_is_bound_by_what_its_own_precision_says(tmp_path: Path) -> None:
    made = KinetoTrace(deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    shapes = [[4096, 4096], [4096, 4096]]
    made.operator("aten::mm", 0, 90_000, shapes=shapes, dtypes=["c10::BFloat16"] * 2)
    made.launch("sm90_xmma_gemm_bf16bf16_bf16f32", 1_000, 100_000, 200_000)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    columns = ("precision", "arithmetic_intensity", "memory_bound")
    assert rows(trace, "A15", *columns) == [(None, None, None), ("bf16_tensor", about(4096 / 3), False)]
