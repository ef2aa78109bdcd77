"""Flags on numbers that cannot be right, what is modelled for them, and that sound numbers raise none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import Hand, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.frames.coverage import layer_work
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

_GB = 1_000_000_000


class Layer:
    """One step of one layer with one kernel of 1 ms, on a device of 1e13 flop/s and 1e12 byte/s."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.hand.run(0)
        self.hand.step(1, 0, 9_000_000)
        self.layer = self.hand.module("Linear_0", 0, 8_000_000, 0, step=1)
        peaks = {"fp32_flop_per_s": 1e13, "dram_byte_per_s": 1e12}
        self.hand.extra["devices"].append({"run_id": 0, "device_id": 0, **peaks})
        self.hand.extra["operators"] = []

    def operator(self, name: str, shapes: Sequence[Sequence[int]], kind: str = "float") -> None:
        start = 10 + len(self.hand.extra["operators"])
        at: dict[str, Any] = {"parent_id": self.layer, "layer_id": self.layer, "step": 1, "phase": "forward"}
        span = self.hand.span("operator", "operator", name, start, 1, thread_id=1, **at)
        inputs = {"input_shapes": json.dumps(shapes), "input_dtypes": json.dumps([kind] * len(shapes))}
        self.hand.extra["operators"].append({"span_id": span, **inputs})

    def kernel(self, phase: str = "forward", **metrics: float) -> int:
        start = 1_000_000 * (1 + len(self.hand.rows["kernels"]))
        at: dict[str, Any] = {"layer": self.layer, "phase": phase, "step": 1, "grid": 1}
        span = self.hand.work("k", start, 1_000_000, launch=5, parent=self.layer, **at)
        for name, value in metrics.items():
            self.hand.metric(span, name, value)
        return span


def _flags(trace: Trace, steps: str | None = None) -> list[tuple[str, str, float, str]]:
    rows = run(find("B01"), StepView.of(trace, steps)).table.to_dicts()
    return [(r["kind"], r["severity"], r["count"], r["detail"]) for r in rows if r["kind"].startswith("sanity_")]


def test_sound_numbers_raise_no_flag() -> None:
    layer = Layer()
    layer.operator("aten::linear", [[1000, 1000], [1000, 1000]])
    layer.kernel(flop_count_sp=2e9, dram_read_bytes=8e6, dram_write_bytes=4e6, achieved_occupancy=1.0)
    for steps in (None, "all", "each", "1"):
        assert _flags(layer.hand.build(), steps) == []
        assert _flags(paper_trace(), steps if steps != "1" else "2") == []


def test_kernels_above_the_roof_are_named_with_how_far() -> None:
    layer = Layer()
    for _ in range(5):
        layer.kernel(flop_count_sp=15e9, dram_read_bytes=1e6, dram_write_bytes=0.0)  # in 1 ms 10e9 are possible
    layer.kernel(flop_count_sp=0.0, dram_read_bytes=2e9, dram_write_bytes=0.0)  # and 1e9 bytes
    layer.kernel(flop_count_sp=10e9, dram_read_bytes=1e6, dram_write_bytes=0.0)  # just at the roof
    ((kind, severity, count, detail),) = _flags(layer.hand.build())
    assert (kind, severity, count) == ("sanity_above_roof", "warning", 6)
    first = "k in Linear_0 (150.0 % of the fp32 roof)"
    assert detail == f"kernels did more than their device can: {first}, {first}, {first} and 3 more"
    view = StepView.of(layer.hand.build())
    assert coverage.ledger(view).filter(kind="sanity_above_roof")["duration_ns"].to_list() == [6_000_000.0]


def test_bytes_below_the_tensors_are_a_warning_where_no_cache_holds_the_rest() -> None:
    layer = Layer()
    layer.operator("aten::relu", [[256, 1_000_000]])
    layer.kernel(dram_read_bytes=1000.0, dram_write_bytes=900e6)
    read, written = _flags(layer.hand.build())
    assert read == (
        "sanity_dram_read_bytes",
        "warning",
        1,
        "layers whose kernels read fewer bytes than their input tensors hold: Linear_0 (1000 of 1024000000 bytes)",
    )
    assert written[:3] == ("sanity_dram_write_bytes", "info", 1)
    assert written[3].endswith("a cache may have held the rest: Linear_0 (900000000 of 1024000000 bytes)")


def test_bytes_of_all_kernels_and_copies_of_the_forward_pass_count() -> None:
    layer = Layer()
    layer.operator("aten::relu", [[_GB // 4]])
    layer.kernel(dram_read_bytes=5e8, dram_write_bytes=5e8)
    copy = layer.hand.work(
        "copy", 4_000_000, 10, launch=3_000, layer=layer.layer, phase="forward", step=1, kind="memcpy"
    )
    layer.hand.extra["copies"] = [{"span_id": copy, "bytes": _GB // 2}]
    assert _flags(layer.hand.build()) == []
    layer.hand.extra["copies"] = [{"span_id": copy, "bytes": 1}]
    assert [flag[:2] for flag in _flags(layer.hand.build())] == [
        ("sanity_dram_read_bytes", "warning"),
        ("sanity_dram_write_bytes", "warning"),
    ]


def test_layers_that_were_measured_in_part_are_not_judged() -> None:
    layer = Layer()
    layer.operator("aten::relu", [[_GB]])
    layer.kernel(dram_read_bytes=1.0, dram_write_bytes=1.0)
    layer.kernel(achieved_occupancy=0.5)
    assert _flags(layer.hand.build()) == []


def test_backward_work_does_not_make_up_for_the_forward_pass() -> None:
    layer = Layer()
    layer.operator("aten::relu", [[_GB]])
    layer.kernel(dram_read_bytes=1.0, dram_write_bytes=8e9)
    layer.kernel("backward", dram_read_bytes=8e9, dram_write_bytes=0.0)
    assert [flag[0] for flag in _flags(layer.hand.build())] == ["sanity_dram_read_bytes"]


@pytest.mark.parametrize("name", ["aten::embedding", "aten::view", "aten::slice", "aten::empty_like"])
def test_operators_that_need_not_read_their_inputs_are_not_judged_by_them(name: str) -> None:
    layer = Layer()
    layer.operator(name, [[_GB]])
    layer.kernel(dram_read_bytes=1.0, dram_write_bytes=1.0)
    assert _flags(layer.hand.build()) == []


@pytest.mark.parametrize(("measured", "flagged"), [(2e9, 0), (7.9e9, 0), (8.1e9, 1), (0.51e9, 0), (0.49e9, 1)])
def test_flops_over_four_times_more_or_fewer_than_modelled_are_flagged(measured: float, flagged: int) -> None:
    layer = Layer()
    layer.operator("aten::linear", [[1000, 1000], [1000, 1000]])  # 2e9
    layer.operator("aten::relu", [[1000, 1000]])
    layer.kernel(flop_count_sp=measured / 2, flop_count_tensor_tf32=measured / 2)
    assert [flag[0] for flag in _flags(layer.hand.build())] == ["sanity_flop_count"] * flagged


def test_flops_are_modelled_only_where_all_operators_are_and_products_outweigh_the_rest() -> None:
    unknown = Layer()
    unknown.operator("aten::linear", [[1000, 1000], [1000, 1000]])
    unknown.operator("aten::scaled_dot_product_attention", [[1000, 1000]])
    light = Layer()
    light.operator("aten::linear", [[1000, 4], [8, 4]])
    light.operator("aten::gelu", [[1000, 8]])
    for layer in (unknown, light):
        layer.kernel(flop_count_sp=1.0)
        assert _flags(layer.hand.build()) == []


def test_a_convolutions_output_is_the_next_tensor_taken() -> None:
    layer = Layer()
    layer.operator("aten::conv2d", [[8, 64, 56, 56], [128, 64, 3, 3]])
    layer.operator("aten::add_", [[], []])  # the counter of batches
    layer.operator("aten::batch_norm", [[8, 128, 28, 28], [128]])
    layer.kernel(flop_count_sp=1.0)
    ((kind, _, _, detail),) = _flags(layer.hand.build())
    assert kind == "sanity_flop_count"
    assert detail.endswith(f"(1 measured, {2 * 64 * 9 * 8 * 128 * 28 * 28} modelled)")


def test_occupancy_outside_of_0_to_1_is_flagged() -> None:
    layer = Layer()
    for value in (0.0, 1.0, 1.2, -0.1, float("nan")):
        layer.kernel(achieved_occupancy=value)
    ((kind, _, count, detail),) = _flags(layer.hand.build())
    assert (kind, count) == ("sanity_occupancy", 3)
    assert detail.endswith("k in Linear_0 (1.2), k in Linear_0 (-0.1), k in Linear_0 (NaN)")


def test_layers_that_take_longer_than_their_step_are_flagged() -> None:
    hand = Hand()
    hand.run(0, serialised=True)
    hand.step(1, 0, 100_000)
    hand.module("A_0", 0, 70_000, 0, step=1, thread_id=1)
    hand.module("B_0", 20_000, 70_000, 1, step=1, thread_id=1)
    ((kind, _, count, detail),) = _flags(hand.build())
    assert (kind, count) == ("sanity_sums", 1)
    assert detail.endswith("take longer than the step: step 1 of run 0 (140000 of 100000 ns)")
    hand.rows["spans"][-1]["thread_id"] = 2  # two threads may
    assert _flags(hand.build()) == []


def test_every_result_carries_the_flags() -> None:
    layer = Layer()
    layer.kernel(achieved_occupancy=2.0)
    assert "sanity_occupancy" in run(find("A10"), StepView.of(layer.hand.build())).ledger["kind"].to_list()


@pytest.mark.real
def test_the_work_of_a_real_resnet18_is_what_its_authors_count(real_dir: Path) -> None:
    # 1.814e9 multiply-adds an image of 224 x 224, as torchvision states; the batch is 512.
    trace = convert([real_dir / "kineto" / "resnet18_train_ddp.mi300x.json.gz"], Options())
    work = layer_work(StepView.of(trace).of_trace).filter(pl.col("flop").is_not_null())
    assert work.height == 21
    assert work["flop"].sum() / 2 / 512 == pytest.approx(1.814e9, rel=1e-3)
