"""What the peaks of two devices let expect, with their data sheets' numbers worked out in the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.helpers.captures import Work, view
from xsp_analyze.compare import comparison
from xsp_analyze.compare.comparison import compare
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

_FIXTURES = Path(__file__).parents[3] / "fixtures" / "torch_profiler"
_WORK = Work(steps=3, device="NVIDIA A100-PG509-200")


def test_time_that_memory_bounds_goes_by_the_bandwidths() -> None:
    after = view(replace(_WORK, device="Tesla V100-SXM2-16GB"), 1)
    peaks = compare([view(_WORK, 1)], [after]).expected
    assert peaks is not None
    assert peaks.memory is not None
    assert (peaks.memory.before, peaks.memory.after) == (1_555e9, 900e9)
    assert peaks.memory.ratio == pytest.approx(1555 / 900)
    assert peaks.compute is None  # no types were recorded, so that it is unknown which peak bounds products


def test_the_same_device_has_nothing_to_expect() -> None:
    assert compare([view(_WORK, 1)], [view(_WORK, 2)]).expected is None


def test_a_device_that_nobody_knows_has_no_peaks() -> None:
    assert compare([view(_WORK, 1)], [view(replace(_WORK, device="abacus"), 1)]).expected is None


def test_operators_go_by_what_bounds_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 us modelled 3 are below the ridge of the H100, 66.9 TFLOP/s over 3,350 GB/s or 20 flop/byte, and 1 above."""
    sides = [_fixture("transformer_train_gpu_synthetic"), _fixture("transformer_train_a100_synthetic")]
    total = float(sides[0].once(kernel_executions)["duration_ns"].sum())
    work = pl.DataFrame(
        {
            "operator": ["a", "b", "unmodelled"],
            "modelled_flop": [19.0, 21.0, None],
            "modelled_bytes": [1.0, 1.0, None],
            "modelled_device_ns": [3000.0, 1000.0, 0.0],
            "device_sum_ns": [3000.0, 1000.0, 5000.0],
        }
    )
    monkeypatch.setattr(comparison, "operator_work", lambda _: work)
    peaks = compare([sides[0]], [sides[1]]).expected
    assert peaks is not None
    assert peaks.by_class == pytest.approx((3 * 3350 / 2039 + 1 * 66.9 / 19.5) / 4)
    assert peaks.modelled_share == pytest.approx(4000 / total)


def _fixture(name: str) -> StepView:
    (file,) = (_FIXTURES / name).glob("trace.json*")
    return StepView.of(convert([file], Options()))
