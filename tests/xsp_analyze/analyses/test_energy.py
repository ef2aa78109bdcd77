"""B14: joules by the trapezoidal rule, for steps and layers. B44: means by time of what was sampled on devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.frames.samples import Energy
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

_SECOND = 1_000_000_000


def _powered(*samples: tuple[int, float]) -> Hand:
    """100 W, doubling over the 2nd second: two steps of a second, one layer's kernel in each."""
    hand = Hand()
    hand.run(0)
    for number, start in ((1, 0), (2, _SECOND)):
        step = hand.step(number, start, _SECOND)
        layer = hand.module("Linear_0", start, 1000, 0, parent_id=step, step=number)
        at = start + _SECOND // 2
        hand.work("k", at, _SECOND // 4, launch=at - 5, parent=layer, layer=layer, step=number)
    shared = {"run_id": 0, "device_id": 0, "counter": "power", "unit": "W"}
    hand.extra["counters"] = [{**shared, "time_ns": time, "value": value} for time, value in samples]
    return hand


def test_energy_of_steps_and_layers() -> None:
    # Step 1: 100 W for 1 s. Step 2, from the end of step 1's work at 0.75 s to the end of its own at 1.75 s: 100 W for
    # 0.25 s, then an even 150 W, the mean between the samples at 1 and 2 s, for 0.75 s: 25 + 112.5 J.
    hand = _powered((0, 100.0), (_SECOND, 100.0), (2 * _SECOND, 200.0))
    table = run(find("B14"), StepView.of(hand.build())).table
    columns = ["scope", "layer_name", "energy_j", "mean_power_w", "covered_share"]
    assert table.select(columns).rows() == [
        ("model", None, pytest.approx(118.75), pytest.approx(118.75), 1.0),
        ("layer", "Linear_0", pytest.approx((25 + 37.5) / 2), pytest.approx(125.0), 1.0),
    ]


def test_what_samples_do_not_cover_is_said() -> None:
    hand = _powered((0, 100.0), (_SECOND // 2, 100.0))
    row = run(find("B14"), StepView.of(hand.build(), "1")).table.row(0, named=True)
    assert (row["energy_j"], row["mean_power_w"], row["covered_share"]) == (pytest.approx(50), pytest.approx(100), 0.5)


def test_without_power_it_says_how_to_record_it() -> None:
    with pytest.raises(XspError, match=r"needs samples of power"):
        run(find("B14"), StepView.of(_powered((0, 100.0)).build()))


def test_sampled_counters_are_means_by_time_of_steps_phases_and_layers() -> None:
    # A sample holds until the next: 0.2 for the first second, then 0.6. Without a step the model is all of the trace:
    # 1.75 s to the end of the last work, (0.2 + 0.75 * 0.6) / 1.75. Kernels run from 0.5 to 0.75 and 1.5 to 1.75 s.
    hand = _powered()
    shared = {"run_id": 0, "device_id": 0, "counter": "SMs Active", "unit": "share"}
    samples = ((0, 0.2), (_SECOND, 0.6), (1_625_000_000, 0.6))
    hand.extra["counters"] = [{**shared, "time_ns": time, "value": value} for time, value in samples]
    hand.extra["counters"].append({**shared, "counter": "allocated_bytes", "unit": "byte", "time_ns": 5, "value": 7.0})
    table = run(find("B44"), StepView.of(hand.build(), "all")).table
    columns = ["counter", "scope", "device_id", "layer_name", "mean_value", "time_ns", "covered_share"]
    covered, mean = 0.375 / 0.5, (0.25 * 0.2 + 0.125 * 0.6) / 0.375
    model = (0.2 + 0.625 * 0.6) / 1.625
    assert table.select(columns).rows() == [
        ("SMs Active", "model", 0, None, pytest.approx(model), 2 * _SECOND, pytest.approx(1.625 / 2)),
        ("SMs Active", "phase", 0, None, pytest.approx(mean), _SECOND // 2, pytest.approx(covered)),
        ("SMs Active", "layer", 0, "Linear_0", pytest.approx(mean), _SECOND // 2, pytest.approx(covered)),
    ]
    first = run(find("B44"), StepView.of(hand.build(), "1")).table
    assert first.filter(scope="layer")["mean_value"].to_list() == [pytest.approx(0.2)]
    assert "no_counters" not in coverage.ledger(StepView.of(hand.build()))["kind"].to_list()


def test_a_pause_in_sampling_is_not_covered() -> None:
    # A sample every 10 ms for 0.1 s, then none for 1.4 s.
    hand = _powered()
    shared = {"run_id": 0, "device_id": 0, "counter": "SMs Active", "unit": "share"}
    times = [10_000_000 * n for n in (*range(11), *range(150, 201))]
    hand.extra["counters"] = [{**shared, "time_ns": at, "value": 0.2 if at < _SECOND else 0.6} for at in times]
    table = run(find("B44"), StepView.of(hand.build(), "all")).table
    model = table.filter(scope="model").select("mean_value", "covered_share").row(0)
    assert model == (pytest.approx((0.11 * 0.2 + 0.5 * 0.6) / 0.61), pytest.approx(0.61 / 2))


def test_without_samples_of_a_device_it_says_how_to_record_them() -> None:
    with pytest.raises(XspError, match=r"needs samples of counters of a device"):
        run(find("B44"), StepView.of(_powered().build()))


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1000)), min_size=2), st.lists(st.integers(0, 10**9)))
def test_energy_is_conserved_wherever_time_is_cut(samples: list[tuple[int, float]], cuts: list[int]) -> None:
    steps, power = zip(*samples, strict=True)
    time = np.cumsum(np.array(steps, dtype=np.int64))
    used = Energy(time, np.array(power))
    edges = np.array(sorted({0, int(time[-1]) + 5, *cuts}), dtype=np.int64)
    edges = edges[edges <= time[-1] + 5]
    total = used.between(edges[:1], edges[-1:])[0]
    assert used.between(edges[:-1], edges[1:]).sum() == pytest.approx(total)
    assert total == pytest.approx(np.trapezoid(power, time) / 1e9)
