"""Rooflines of kernels, layers and the model, in every precision that was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.counted_layer import mixed
from tests.helpers.hand import Hand, paper_trace
from tests.helpers.run_sets import DRAM, FLOPS, OCCUPANCY, merged, write_counters, write_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.pages.blocks import figure_data
from xsp_analyze.trace.step_view import StepView
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from pathlib import Path

_HELD = ("precision", "flop_count", "arithmetic_intensity", "flop_per_s", "roof_flop_per_s", "roof_share", "bound")


def _rows(trace: Trace, identifier: str, *columns: str, steps: str | None = None) -> list[tuple[object, ...]]:
    return run(find(identifier), StepView.of(trace, steps)).table.select(columns).rows()


def test_each_precision_of_a_kernel_is_held_against_its_own_peak() -> None:
    # mma moves 4 kB in 400 ns: 8e6 / 4000 = 2000 flop/byte, right at bf16's ridge; 4e4 / 4000 = 10, below FP32's of 50.
    # copy_kernel does nothing, which is said once: it moves 1 kB in 100 ns, half of the bandwidth.
    assert _rows(mixed().build(), "A09", "kernel_name", *_HELD) == [
        ("mma", "fp32", 4e4, 10.0, 1e11, 2e11, 0.5, "memory"),
        ("mma", "bf16_tensor", 8e6, 2000.0, 2e13, 4e13, 0.5, "compute"),
        ("copy_kernel", "fp32", 0.0, 0.0, 0.0, 0.0, 0.5, "memory"),
    ]


def test_each_kernel_has_its_label_and_class_in_every_precision() -> None:
    assert _rows(mixed().build(), "A09", "kernel_name", "kernel_label", "kernel_class") == [
        ("mma", "mma", "matrix product"),  # by its layer, a Linear
        ("mma", "mma", "matrix product"),
        ("copy_kernel", "copy", "copy"),
    ]


def test_the_roof_says_which_it_is_and_who_says_so() -> None:
    assert _rows(mixed().build(), "A09", "roof") == [
        ("DRAM bandwidth of Card (its data sheet)",),
        ("bf16_tensor peak of Card (its data sheet)",),
        ("DRAM bandwidth of Card (its data sheet)",),
    ]


def test_layers_sum_each_precision_over_the_kernels_in_which_it_was_counted() -> None:
    # 5 kB in 500 ns over both kernels.
    assert _rows(mixed().build(), "A14", "layer_name", *_HELD) == [
        ("Linear_0", "fp32", 4e4, 8.0, 8e10, 1.6e11, 0.5, "memory"),
        ("Linear_0", "bf16_tensor", 8e6, 1600.0, 1.6e13, 3.2e13, 0.5, "memory"),
    ]


def test_the_model_has_a_further_row_for_further_precisions_without_its_device_time() -> None:
    columns = ("batch_size", "precision", "kernel_duration_ns", "gpu_share", "flop_count", "roof_share", "memory_bound")
    assert _rows(mixed().build(), "A15", *columns) == [
        (8, "fp32", 500.0, 0.5, 4e4, 0.5, True),
        (8, "bf16_tensor", None, None, 8e6, 0.5, True),
    ]


def test_unknown_peaks_leave_the_roof_open_and_say_so() -> None:
    rows = _rows(mixed(peaks={"fp32": 1e12, "dram": 2e10}).build(), "A09", "precision", "bound", "roof")
    assert rows[1] == ("bf16_tensor", None, "unknown: no bf16_tensor peak of the device is known")
    rows = _rows(mixed(peaks={"fp32": 1e12}).build(), "A09", "roof_flop_per_s", "bound", "roof")
    assert rows[0] == (None, None, "unknown: no DRAM bandwidth of the device is known")


def test_devices_that_differ_have_no_common_roof_but_each_kernel_has_its_own() -> None:
    hand = mixed()
    hand.extra["devices"].append({"run_id": 0, "device_id": 1, "fp32_flop_per_s": 1e9, "dram_byte_per_s": 1e9})
    other = hand.work("other", 800, 100, device_id=1, step=1, launch=60, layer=1, phase="forward")
    for metric, value in (("flop_count_sp", 50.0), ("dram_read_bytes", 10.0), ("dram_write_bytes", 15.0)):
        hand.metric(other, metric, value)
    rows = _rows(hand.build(), "A09", "kernel_name", "roof_flop_per_s", "roof_share")
    assert ("other", 1e9, 0.5) in rows
    assert {row[0] for row in _rows(hand.build(), "A14", "roof_flop_per_s")} == {None}


def test_each_step_has_its_own_rows() -> None:
    assert len(_rows(mixed().build(), "A09", "step", steps="each")) == 3
    assert _rows(mixed().build(), "A14", "step", "precision", steps="each") == [(1, "fp32"), (1, "bf16_tensor")]


def test_bytes_that_are_only_known_together_give_an_intensity() -> None:
    hand = Hand()
    hand.run(0)
    span = hand.work("k", 10, 100, launch=1)
    hand.metric(span, "flop_count_sp", 1000.0)
    hand.metric(span, "dram_bytes", 250.0)
    trace = hand.build()
    assert _rows(trace, "A09", "arithmetic_intensity", "dram_read_bytes") == [(4.0, None)]
    assert _rows(trace, "A10", "arithmetic_intensity") == _rows(trace, "A15", "arithmetic_intensity") == [(4.0,)]


@pytest.mark.parametrize("identifier", ["A09", "A12", "A14"])
def test_without_counters_they_say_what_to_do(identifier: str) -> None:
    with pytest.raises(XspError, match=r"needs hardware counters or shapes of operators.*Record shapes.*xsp merge"):
        run(find(identifier), StepView.of(paper_trace()))


@pytest.mark.parametrize("identifier", ["A09", "A14"])
def test_without_flop_counts_there_is_no_roofline(identifier: str) -> None:
    hand = Hand()
    hand.run(0)
    layer = hand.module("Linear_0", 0, 100, 0)
    hand.metric(hand.work("k", 10, 10, launch=5, layer=layer, phase="forward"), "achieved_occupancy", 0.5)
    with pytest.raises(XspError, match="needs flop counts, and no kernel of this trace has one"):
        run(find(identifier), StepView.of(hand.build()))


def test_series_of_different_units_have_scales_of_their_own() -> None:
    series = figure_data(run(find("A12"), StepView.of(mixed().build())))["series"]
    assert isinstance(series, list)
    assert [(s["name"], s["exact"]) for s in series][:2] == [("flop_count", "flop"), ("dram_read_bytes", "byte")]
    assert series[0]["divisor"] != series[1]["divisor"]


def test_the_papers_example(tmp_path: Path) -> None:
    """ResNet50 v1.5, batch 256, on a V100: the third kernel of the first convolution.

    62 GFlop, 12.1 MB read, 296 MB written, 13.2 % occupancy: 62e9 / 308.1e6 = 201.2 flop/byte, above the 15 700 / 900 =
    17.44 of the V100's data sheet. The convolution's stride is in no profile; that batch normalisation runs next on
    256 x 64 x 112 x 112 says what came out of it: 822 MB, more than its kernels wrote.
    """
    card = {"device": {"name": "Tesla V100-SXM2-16GB"}, "batch_size": 256}
    trace = KinetoTrace(deviceProperties=[{"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "numSms": 80}])
    trace.step(1, 0, 20_000_000)
    trace.module("Conv2d_0", 1_000, 9_000_000)
    shapes: list[list[int]] = [[256, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], []]
    trace.operator("aten::conv2d", 2_000, 8_000_000, shapes=shapes, dtypes=["float"] * 2 + [""] * 5)
    for number, (name, length) in enumerate((("pad", 400_000), ("shuffle", 300_000), ("scudnn_128x64", 6_000_000))):
        trace.launch(name, 10_000 * (number + 1), 100_000 + 1_000_000 * number, length)
    trace.module("BatchNorm2d_0", 9_100_000, 1_000_000)
    trace.operator("aten::batch_norm", 9_200_000, 10_000, shapes=[[256, 64, 112, 112], [64]])
    write_run(tmp_path / "MLG", "MLG", trace, serialized=True, **card)
    kernels = (("pad", 1), ("shuffle", 1), ("scudnn_128x64", 1))
    values = {FLOPS: ((0, 0, 0), (0, 0, 0), (0, 0, 31_000_000_000)), OCCUPANCY: ((50.0,), (50.0,), (13.2,))}
    values[DRAM] = ((154_000_000, 80_000_000), (80_000_000, 80_000_000), (12_100_000, 296_000_000))
    for columns, rows in values.items():
        counted = [(*kernel, row) for kernel, row in zip(kernels, rows, strict=True)]
        write_counters(tmp_path / columns[0], ["any"], columns, counted, **card)
    profile = merged(tmp_path)

    third = run(find("A09"), StepView.of(profile)).table.row(2, named=True)
    assert (third["kernel_name"], third["flop_count"]) == ("scudnn_128x64", 62e9)
    assert round(third["arithmetic_intensity"], 1) == 201.2
    assert round(third["ideal_intensity"], 2) == 17.44
    assert third["bound"] == "compute"
    assert third["roof"] == "fp32 peak of Tesla V100-SXM2-16GB (NVIDIA V100 data sheet, 2020)"
    occupancy = run(find("A08"), StepView.of(profile)).table["achieved_occupancy"][2]
    assert occupancy == pytest.approx(0.132)

    ledger = coverage.ledger(StepView.of(profile))
    flags = {r["kind"]: r for r in ledger.to_dicts() if r["kind"].startswith("sanity_")}
    assert list(flags) == ["sanity_dram_write_bytes"]
    assert flags["sanity_dram_write_bytes"]["severity"] == "warning"
    assert flags["sanity_dram_write_bytes"]["detail"] == (
        "layers whose kernels wrote fewer bytes than their output tensor holds: Conv2d_0 (456000000 of 822083584 bytes)"
    )
