"""Idle time of a profile of levels, where the profiler of kernels made the step longer."""

from __future__ import annotations

from pathlib import Path

import pytest

import xsp

_LEVELS = Path(__file__).resolve().parents[3] / "fixtures" / "jaeger" / "mlmodelscope_leveled_synthetic" / "traces.json"


def test_a_step_can_save_no_more_than_it_is_idle_without_the_profiler() -> None:
    """Model latency is 6.01 ms; in the run with kernels a step takes 7.01 ms, of which kernels run in 4.05."""
    by_rule = {one["id"]: one for one in xsp.open(_LEVELS).findings().to_polars().to_dicts()}["gpu-idle"]
    assert by_rule["gain_ns"] == pytest.approx(6_010_000 - 4_050_000)
    assert "42.2" in by_rule["sentence"]
    assert "with kernels profiled" in by_rule["sentence"]
