"""B09: the peak of memory, when and in which layer it was."""

from __future__ import annotations

from typing import Any

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView


def _sampled(*samples: tuple[int, float], **columns: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    shared = {"run_id": 0, "counter": "allocated_bytes", "device_id": 0, "unit": "byte", **columns}
    return [{**shared, "time_ns": time, "value": value} for time, value in samples]


def test_mean_holds_each_value_until_the_next_and_the_peak_names_its_layer() -> None:
    # 10 for 20 ns, 40 for 10 ns, 0 at the end: mean (200 + 400) / 30.
    hand = Hand()
    hand.run(0)
    hand.module("Net_0", 0, 100, self_host=10)
    hand.module("Net_0.Linear_0", 15, 20, 0, step=3)
    hand.module("Net_0.Linear_1", 40, 20, 1, step=3)
    hand.extra["counters"] = _sampled((0, 10.0), (20, 40.0), (30, 0.0))
    row = run(find("B09"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["first_bytes"], row["mean_bytes"], row["last_bytes"]) == (10.0, 20.0, 0.0)
    assert (row["peak_bytes"], row["peak_time_ns"]) == (40.0, 20)
    assert (row["peak_layer_name"], row["peak_layer_index"], row["peak_step"]) == ("Linear_0", 0, 3)


def test_one_sample_has_no_mean_and_a_peak_outside_of_layers_names_none() -> None:
    hand = Hand()
    hand.run(0)
    hand.module("Linear_0", 50, 10, 0)
    hand.extra["counters"] = _sampled((5, 7.0)) + _sampled((1, 2.0), counter="power", unit="W")
    table = run(find("B09"), StepView.of(hand.build())).table
    assert table.select("sample_count", "mean_bytes", "peak_bytes", "peak_layer_name").rows() == [(1, None, 7.0, None)]
