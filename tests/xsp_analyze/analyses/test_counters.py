"""Columns that hardware counters fill."""

from __future__ import annotations

import polars as pl
import pytest

from tests.helpers.hand import Hand, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.columns import COUNTER_COLUMNS
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.trace.step_view import StepView


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
