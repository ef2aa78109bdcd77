"""Columns that hardware counters fill."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.helpers.hand import Hand, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.columns import BOUND_COLUMNS, COUNTER_COLUMNS
from xsp_analyze.core import run
from xsp_analyze.findings import advise
from xsp_analyze.frames import coverage
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options


def measured() -> Hand:
    """Two kernels of a layer: 4 flop/byte for 100 ns and 16 flop/byte for 300 ns, on a device that balances at 10."""
    hand = Hand()
    hand.run(0)
    layer = hand.module("Linear_0", 0, 1000, 0)
    for name, duration, flop, read, write, occupancy in (
        ("thin", 100, 400.0, 60.0, 40.0, 0.5),
        ("thick", 300, 3200.0, 150.0, 50.0, 0.9),
    ):
        at = 10 + duration
        span = hand.work(name, at, duration, launch=5, parent=layer, layer=layer, phase="forward", grid=1)
        hand.metric(span, "flop_count_sp", flop)
        hand.metric(span, "dram_read_bytes", read)
        hand.metric(span, "dram_write_bytes", write)
        hand.metric(span, "achieved_occupancy", occupancy)
    hand.work("copy", 600, 20, launch=500, parent=layer, layer=layer, phase="forward", kind="memcpy")
    peaks = {"dram_byte_per_s": 1e9, "fp32_flop_per_s": 1e10}
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, **peaks})
    return hand


def test_sums_intensity_throughput_and_bound_follow_from_counters() -> None:
    columns = [c.name for c in COUNTER_COLUMNS]
    trace = measured().build()
    by_name = run(find("A10"), StepView.of(trace)).table.select("kernel_name", *columns).rows()
    assert by_name == [
        ("thick", 3200.0, 150.0, 50.0, 0.9, 16.0, 3200.0 * 1e9 / 300, False),
        ("thin", 400.0, 60.0, 40.0, 0.5, 4.0, 400.0 * 1e9 / 100, True),
        ("copy", None, None, None, None, None, None, None),
    ]
    occupancy = (0.5 * 100 + 0.9 * 300) / 400
    total = (3600.0, 210.0, 90.0, pytest.approx(occupancy), 12.0, 3600.0 * 1e9 / 400, False)
    assert run(find("A11"), StepView.of(trace)).table.select(columns).rows() == [total]
    assert run(find("A15"), StepView.of(trace)).table.select(columns).rows() == [total]
    assert "no_counters" not in coverage.ledger(StepView.of(trace))["kind"].to_list()


def test_kernels_that_were_not_measured_are_said() -> None:
    hand = measured()
    hand.work("late", 700, 33, launch=690)
    partial = coverage.ledger(StepView.of(hand.build())).filter(pl.col("kind") == "counters_partial")
    assert partial.select("count", "duration_ns").rows() == [(1, 33)]


def test_without_counters_the_columns_are_there_and_null_and_the_ledger_says_so() -> None:
    view = StepView.of(paper_trace())
    for identifier in ("A08", "A10", "A11", "A15"):
        table = run(find(identifier), view).table
        for column in COUNTER_COLUMNS:
            assert table[column.name].null_count() == table.height
    assert "no_counters" in coverage.ledger(view)["kind"].to_list()


def _waiting() -> Hand:
    """Two layers: one kernel of the first waits for memory, half as long another does for a barrier."""
    hand = Hand()
    hand.run(0)
    for number, (name, kernels) in enumerate(
        {"Conv_0": (("long", 200, 0.7, 0.1), ("short", 100, 0.4, 0.5)), "ReLU_1": (("thin", 50, 0.2, 0.3),)}.items()
    ):
        start = 1000 * number
        layer = hand.module(name, start, 900, number)
        for at, (kernel, duration, memory, barrier) in enumerate(kernels):
            begin = start + 10 + 300 * at
            span = hand.work(kernel, begin, duration, launch=begin - 5, parent=layer, layer=layer, phase="forward")
            hand.metric(span, "memory_dependency_stall_share", memory)
            hand.metric(span, "synchronisation_stall_share", barrier)
            hand.metric(span, "compute_utilization", 0.1 * (at + 1))
            hand.metric(span, "memory_utilization", 0.8)
            for what, blocks in (("registers", 2 + at), ("shared_mem", 2), ("warps", 4), ("blocks", 32)):
                hand.metric(span, f"launch__occupancy_limit_{what}", blocks)
    return hand


def test_what_bounds_a_kernel_and_a_layer() -> None:
    view = StepView.of(_waiting().build())
    columns = [c.name for c in BOUND_COLUMNS]
    assert run(find("A08"), view).table.select("kernel_name", *columns).rows() == [
        ("long", 0.1, 0.8, "memory dependencies", 0.7, "registers and shared memory"),
        ("short", 0.2, 0.8, "other warps, at barriers", 0.5, "shared memory"),
        ("thin", 0.1, 0.8, "other warps, at barriers", 0.3, "registers and shared memory"),
    ]
    # Means by time: (200 * 0.1 + 100 * 0.2) / 300, and of memory (200 * 0.7 + 100 * 0.4) / 300.
    first = (pytest.approx(0.4 / 3), pytest.approx(0.8), "memory dependencies", pytest.approx(0.6))
    assert run(find("A12"), view).table.select("layer_name", *columns).rows() == [
        ("Conv_0", *first, "registers and shared memory"),
        ("ReLU_1", 0.1, 0.8, "other warps, at barriers", 0.3, "registers and shared memory"),
    ]


def test_the_layer_that_waits_longest_is_told_with_what_for() -> None:
    (advice,) = [a for a in advise(StepView.of(_waiting().build())) if a.rule.id == "stalled-layer"]
    assert (
        advice.observation.sentence
        == "Layer Conv_0 waits 60.0\u202f% on memory dependencies: so much of the cycles of its warps."
    )
    assert [e.value for e in advice.observation.evidence] == [300, 300]
    assert not [a for a in advise(StepView.of(measured().build())) if a.rule.id == "stalled-layer"]


def test_what_bounds_layers_and_their_types() -> None:
    """B45: by type first, then by layer; with the part of the time that is known."""
    hand = _waiting()
    layer = hand.module("Conv_2", 3000, 900, 2)
    hand.work("uncounted", 3010, 100, launch=3005, parent=layer, layer=layer, phase="forward")
    columns = ["scope", "layer_type", "layer_name", "kernel_duration_ns", "counted_share", "stall_reason"]
    table = run(find("B45"), StepView.of(hand.build())).table
    assert table.select(*columns, "synchronisation_stall_share").rows() == [
        ("type", "Conv", None, 400, 0.75, "memory dependencies", pytest.approx((20 + 50) / 300)),
        ("type", "ReLU", None, 50, 1.0, "other warps, at barriers", 0.3),
        ("layer", "Conv", "Conv_0", 300, 1.0, "memory dependencies", pytest.approx((20 + 50) / 300)),
        ("layer", "ReLU", "ReLU_1", 50, 1.0, "other warps, at barriers", 0.3),
        ("layer", "Conv", "Conv_2", 100, 0.0, None, None),
    ]


def test_kernels_of_a_run_for_counters_lack_ranges_and_no_correlation() -> None:
    path = Path(__file__).resolve().parents[3] / "fixtures" / "ncu_csv" / "raw_page" / "ncu.csv"
    rows = run(find("A08"), StepView.of(convert([path], Options()), "all")).ledger
    (advice,) = rows.filter(pl.col("kind") == "orphan_no_correlation")["advice"]
    assert advice.startswith("Record the ranges of layers with the counters (ncu --nvtx)")


def test_in_a_run_without_layers_the_kernel_that_waits_longest_is_told() -> None:
    hand = Hand()
    hand.run(0)
    for number, (name, duration, waiting) in enumerate((("gemm", 300, 0.7), ("relu", 100, 0.9), ("gemm", 100, 0.3))):
        span = hand.work(name, 1_000 * number, duration)
        hand.metric(span, "memory_dependency_stall_share", waiting)
    (advice,) = [a for a in advise(StepView.of(hand.build())) if a.rule.id == "stalled-layer"]
    sentence = "Kernel gemm waits 60.0\u202f% on memory dependencies: so much of the cycles of its warps."
    assert advice.observation.sentence == sentence
    assert [e.value for e in advice.observation.evidence] == [400, 400]
