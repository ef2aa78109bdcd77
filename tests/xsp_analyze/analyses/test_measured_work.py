"""B27: counters beside what shapes ask for, over the calls of which both is known."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import Trace, XspError


class _Calls(Hand):
    """Operators one after the other, each 100 ns on the host; their kernels later, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.run(0)
        self.at = 0

    def call(self, name: str, *shapes: list[int], layer: int | None = None, **columns: Any) -> int:  # noqa: ANN401
        span_id = self.span("operator", "operator", name, self.at, 100, parent_id=layer, **columns)
        types = "[" + ", ".join('"float"' for _ in shapes) + "]"
        described = {"span_id": span_id, "input_shapes": str([*shapes]), "input_dtypes": types}
        self.extra.setdefault("operators", []).append(described)
        return span_id

    def kernel(self, call: int, duration: int, *, layer: int | None = None, **measured: float) -> None:
        span_id = self.work(f"k{call}", 10_000 + self.at, duration, launch=self.at + 10, parent=call, layer=layer)
        self.at += 100
        for metric, value in measured.items():
            self.metric(span_id, metric, value)


def _rows(trace: Trace, steps: str = "all") -> list[dict[str, Any]]:
    return run(find("B27"), StepView.of(trace, steps)).table.to_dicts()


def test_bytes_and_flop_are_held_against_the_model() -> None:
    # (20 x 30) (30 x 40): 48,000 flop and 4 x (600 + 1,200 + 800) = 10,400 bytes
    calls = _Calls()
    mm = calls.call("aten::mm", [20, 30], [30, 40])
    calls.kernel(mm, 60, dram_read_bytes=15_000, dram_write_bytes=4_000, flop_count_sp=50_000)
    calls.kernel(mm, 40, dram_read_bytes=7_000, dram_write_bytes=5_200, flop_count_sp=4_000)
    (row,) = _rows(calls.build())
    assert (row["operator"], row["layer_index"], row["count"], row["device_sum_ns"]) == ("aten::mm", None, 1, 100)
    assert (row["measured_bytes"], row["modelled_bytes"]) == (31_200.0, 10_400.0)
    assert (row["bytes_ratio"], row["excess_bytes"], row["bytes_share"]) == (3.0, 20_800.0, 1.0)
    assert row["byte_per_s"] == pytest.approx(31_200 / 100e-9)
    assert (row["measured_flop"], row["modelled_flop"], row["flop_ratio"]) == (54_000.0, 48_000.0, 1.125)
    assert row["flop_share"] == 1.0


def test_flops_of_all_precisions_count() -> None:
    calls = _Calls()
    mm = calls.call("aten::mm", [20, 30], [30, 40])
    calls.kernel(mm, 60, flop_count_tensor_tf32=48_000, flop_count_sp=2_400)
    (row,) = _rows(calls.build())
    assert (row["flop_ratio"], row["bytes_ratio"], row["bytes_share"]) == (1.05, None, 0.0)


def test_only_calls_of_which_both_is_known_are_compared() -> None:
    calls = _Calls()
    measured: dict[str, Any] = {"dram_read_bytes": 1_000.0, "dram_write_bytes": 1_000.0}
    calls.kernel(calls.call("aten::relu", [100]), 30, **measured)
    calls.kernel(calls.call("aten::relu", [100]), 50)  # not measured
    half = calls.call("aten::relu", [100])  # one of its kernels is not
    calls.kernel(half, 60, **measured)
    calls.kernel(half, 40)
    calls.kernel(calls.call("my::op", [100]), 20, **measured)  # not modelled
    relu, own = _rows(calls.build())
    assert (relu["operator"], relu["count"], relu["device_sum_ns"]) == ("aten::relu", 3, 180)
    assert (relu["measured_bytes"], relu["modelled_bytes"], relu["bytes_ratio"]) == (2_000.0, 800.0, 2.5)
    assert relu["bytes_share"] == pytest.approx(30 / 180)
    assert relu["byte_per_s"] == pytest.approx(2_000 / 30e-9)
    assert (own["operator"], own["bytes_ratio"], own["measured_bytes"], own["bytes_share"]) == (
        "my::op",
        None,
        None,
        0.0,
    )


def test_work_without_products_has_no_flop_to_compare() -> None:
    calls = _Calls()
    calls.kernel(calls.call("aten::relu", [100]), 30, flop_count_sp=100)
    (row,) = _rows(calls.build())
    assert (row["modelled_flop"], row["flop_ratio"]) == (None, None)


def test_copies_and_fills_count_with_the_bytes_recorded() -> None:
    # of 100 elements in FP32 a copy reads and writes 400 bytes each; a fill of a work space writes 64
    calls = _Calls()
    call = calls.call("aten::relu", [100])
    calls.kernel(call, 30, dram_read_bytes=400, dram_write_bytes=400)
    for kind, copy_kind, size in (("memcpy", "Device-to-Device", 400), ("memset", None, 64)):
        span_id = calls.work(kind, 20_000 + calls.at, 5, launch=call + 50, parent=call, kind=kind)
        calls.extra.setdefault("copies", []).append({"span_id": span_id, "bytes": size, "copy_kind": copy_kind})
    (row,) = _rows(calls.build())
    assert (row["measured_bytes"], row["modelled_bytes"]) == (800.0 + 800.0 + 64.0, 800.0)


def test_layers_have_rows_of_their_own() -> None:
    calls = _Calls()
    for index, moved in ((0, 800.0), (1, 2_400.0)):
        layer = calls.module(f"ReLU_{index}", calls.at, 100, index)
        call = calls.call("aten::relu", [100], layer=layer)
        calls.kernel(call, 50 - index, layer=layer, dram_read_bytes=moved / 2, dram_write_bytes=moved / 2)
    named = [(row["layer_index"], row["layer_name"], row["bytes_ratio"]) for row in _rows(calls.build())]
    assert named == [(0, "ReLU_0", 1.0), (1, "ReLU_1", 3.0)]


def test_a_mean_step_has_what_a_step_has() -> None:
    calls = _Calls()
    for number in (0, 1):
        calls.at = number * 1_000
        calls.step(number, calls.at, 1_000)
        call = calls.call("aten::relu", [100], step=number)
        span_id = calls.work("k", 100 + calls.at, 50, launch=calls.at + 10, parent=call, step=number)
        for metric in ("dram_read_bytes", "dram_write_bytes"):
            calls.metric(span_id, metric, 400.0 * (1 + number))
    (mean,) = _rows(calls.build(), "mean")
    assert (mean["count"], mean["device_sum_ns"], mean["bytes_ratio"]) == (1.0, 50.0, 1.5)
    assert (mean["measured_bytes"], mean["modelled_bytes"]) == (1_200.0, 800.0)
    each = _rows(calls.build(), "each")
    assert [(row["step"], row["bytes_ratio"]) for row in each] == [(0, 1.0), (1, 2.0)]


def test_without_counters_there_is_no_answer() -> None:
    calls = _Calls()
    calls.kernel(calls.call("aten::relu", [100]), 30)
    with pytest.raises(XspError, match="needs hardware counters"):
        _rows(calls.build())


def test_rows_are_in_order_of_device_time() -> None:
    calls = _Calls()
    for name, duration in (("aten::relu", 10), ("aten::neg", 30), ("aten::abs", 10)):
        calls.kernel(calls.call(name, [100]), duration, dram_read_bytes=1, dram_write_bytes=1)
    table = run(find("B27"), StepView.of(calls.build(), "all")).table
    assert table.select("operator", pl.col("device_sum_ns")).rows() == [
        ("aten::neg", 30),
        ("aten::abs", 10),
        ("aten::relu", 10),
    ]
