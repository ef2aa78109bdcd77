"""The run set among the fixtures: what it cost to profile it comes out as it was put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import xsp
from fixtures.make.leveled import LAUNCH_COST_NS, LAYER_COST_NS, LAYERS, RUN_SET

if TYPE_CHECKING:
    from pathlib import Path

_JITTER = 0.01
_KERNELS = sum(len(layer.kernels) for layer in LAYERS)


@pytest.fixture(name="trace", scope="module")
def fixture_trace(fixtures_dir: Path) -> xsp.OpenTrace:
    return xsp.open(fixtures_dir / RUN_SET)


def test_overhead_is_that_of_layers_and_of_launches(trace: xsp.OpenTrace) -> None:
    rows = trace.analyze("B02").to_polars().filter(scope="model")
    cost = dict(rows.select("level", "overhead_ns").iter_rows())
    tolerance_ns = _JITTER * trace.analyze("A01").to_polars()["latency_ns"].item()
    assert cost["layer"] == pytest.approx(len(LAYERS) * LAYER_COST_NS, abs=tolerance_ns)
    assert cost["kernel"] == pytest.approx(_KERNELS * LAUNCH_COST_NS, abs=tolerance_ns)
    assert cost["total"] == pytest.approx(cost["layer"] + cost["kernel"])


def test_layers_and_kernels_are_the_program_s(trace: xsp.OpenTrace) -> None:
    rows = trace.analyze("A11").to_polars()
    assert rows["layer_name"].to_list() == [layer.name for layer in LAYERS]
    for row, layer in zip(rows.iter_rows(named=True), LAYERS, strict=True):
        expected = sum(work.duration_ns for work in layer.kernels)
        assert row["kernel_duration_ns"] == pytest.approx(expected, rel=_JITTER)
        assert row["dram_read_bytes"] == sum(work.read_bytes for work in layer.kernels)
        assert row["flop_count"] == sum(2 * work.fused_multiply_adds + work.adds for work in layer.kernels)
