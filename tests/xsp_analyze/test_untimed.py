"""A trace that says of nothing how long it took: its times are unknown, not 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import SOUND, trace_of
from tests.helpers.hand import Hand
from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import Role, run
from xsp_analyze.findings.registry import advise
from xsp_analyze.needs import holds
from xsp_analyze.service import summarise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _untimed() -> Trace:
    hand = Hand()
    hand.run(0)
    kernel = hand.work("gemm", 0, None, grid=4)  # type: ignore[arg-type]
    hand.metric(kernel, "flop_count_sp", 100.0)
    return hand.build()


def _assert_no_time(trace: Trace) -> None:
    frames = StepView.of(trace)
    for analysis in all_analyses():
        if all(holds(frames.of_trace, need) for need in analysis.needs):
            result = run(analysis, frames)
            times = [c.name for c in result.columns if c.unit == "ns" and c.role is not Role.KEY]
            assert all(result.table[name].null_count() == result.table.height for name in times), analysis.id
            assert not any(row["duration_ns"] for row in result.ledger.to_dicts())
    summary = summarise(trace)
    assert (summary.device_time_ns, summary.window_ns, summary.device_window_ns) == (None, None, None)
    assert summary.devices[0]["duration_ns"] is None
    assert not advise(frames) or all(one.gain_ns is None for one in advise(frames))


def test_no_analysis_says_0() -> None:
    _assert_no_time(_untimed())


def test_a_duration_that_is_known_counts_beside_those_that_are_not() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("gemm", 0, None)  # type: ignore[arg-type]
    hand.work("gemm", 10, 30)
    summary = summarise(hand.build())
    assert (summary.device_time_ns, summary.devices[0]["duration_ns"]) == (30, 30)


@pytest.mark.parametrize("case", ["training_memory_cpu", "two_ranks", "transformer_train_gpu_synthetic"])
@pytest.mark.parametrize("every", [1, 2])
def test_shares_of_what_took_no_time_are_unknown(case: str, every: int) -> None:
    sound = next(one for one in SOUND if one.name == f"torch_profiler/{case}")
    trace = trace_of(sound)
    spans = trace.scan("spans").collect()
    timeless = pl.int_range(pl.len()) % every == 0
    spans = spans.with_columns(pl.when(timeless).then(0).otherwise("duration_ns").cast(pl.Int64).alias("duration_ns"))
    frames = StepView.of(replace(trace, parts={**trace.parts, "spans": spans}))
    for analysis in all_analyses():
        if all(holds(frames.of_trace, need) for need in analysis.needs):
            run(analysis, frames)  # which refuses NaN and infinities
    advise(frames)


@pytest.mark.real
def test_counters_of_a_real_gtx_950_come_without_times(real_dir: Path) -> None:
    _assert_no_time(convert([real_dir / "nvprof" / "metrics_10000.gtx950.csv"], Options()))
