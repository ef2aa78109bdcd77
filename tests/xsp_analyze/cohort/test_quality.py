"""Accuracy, time and cost to a target, and outputs of one model's traces beside each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.cohort_members import member
from tests.helpers.recorded_results import recorded_tensor, run_of
from xsp_analyze.cohort.cohort import Member, group_by_system
from xsp_analyze.cohort.facts import facts_of, from_json
from xsp_analyze.cohort.quality import Measure, Prices, Target, read_target, time_to
from xsp_analyze.cohort.tables import accuracies, models, outputs, tables
from xsp_analyze.pages.cohort import render
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_MINUTE = 60 * 10**9
_CURVE = [Measure("top1", "CIFAR10", value, time_ns=at * _MINUTE) for at, value in ((1, 0.8), (2, 0.94), (3, 0.93))]
_PRICES = Prices("USD", {"gpu": 6.0})


@pytest.mark.parametrize(
    ("metric", "target", "minutes"),
    [("top1", 0.93, 2), ("TOP1", 0.8, 1), ("top1", 0.95, None), ("top5", 0.1, None)],
)
def test_a_target_is_reached_at_the_first_point_that_has_it(metric: str, target: float, minutes: int | None) -> None:
    reached = time_to(_CURVE, Target(metric, target))
    assert reached == (None if minutes is None else minutes * _MINUTE)


def test_of_a_loss_less_is_better_unless_the_run_says_otherwise() -> None:
    losses = [Measure("val_loss", None, value, time_ns=at) for at, value in ((1, 2.0), (2, 0.5))]
    assert time_to(losses, Target("val_loss", 1.0)) == 2
    odd = [Measure("val_loss", None, m.value, higher_is_better=True, time_ns=m.time_ns) for m in losses]
    assert time_to(odd, Target("val_loss", 1.0)) == 1


def test_time_and_cost_to_a_target_are_in_the_tables() -> None:
    systems = group_by_system([member("net", accuracies=[*_CURVE, Measure("top1", "CIFAR10", 0.935, "share", 10_000)])])
    (row,) = accuracies(systems, _PRICES, Target("top1", 0.93)).table.to_dicts()
    assert (row["value"], row["best_value"], row["curve_points"], row["sample_count"]) == (0.935, 0.94, 3, 10_000)
    assert (row["time_to_target_ns"], row["target"]) == (2 * _MINUTE, 0.93)
    assert row["cost_to_target"] == pytest.approx(0.2)  # two minutes at 6 an hour
    (summed,) = models(systems, _PRICES, Target("top1", 0.93)).table.to_dicts()
    assert (summed["accuracy_metric"], summed["accuracy"]) == ("top1 on CIFAR10", 0.935)
    assert summed["cost_to_target"] == pytest.approx(0.2)


def test_without_a_target_or_a_price_nothing_is_made_up() -> None:
    systems = group_by_system([member("net", accuracies=_CURVE)])
    (row,) = accuracies(systems).table.to_dicts()
    assert (row["target"], row["time_to_target_ns"], row["cost_to_target"]) == (None, None, None)
    (row,) = accuracies(systems, Prices(), Target("top1", 0.93)).table.to_dicts()
    assert (row["time_to_target_ns"], row["cost_to_target"]) == (2 * _MINUTE, None)


def _traced(folder: Path, name: str, values: list[float], digit: str, framework: str = "pytorch") -> Member:
    tensors = [
        recorded_tensor("input", "input", [1.0], "1"),
        recorded_tensor("weights", "w", [2.0], "2"),
        recorded_tensor("output", "output", values, digit),
    ]
    trace = run_of(folder / name, tensors=tensors, framework={"name": framework, "version": "1"})
    return Member(name, from_json(json.loads(json.dumps(facts_of(trace, name).to_json()))))


def test_outputs_of_one_model_are_compared_with_those_of_its_first_trace(tmp_path: Path) -> None:
    members = [_traced(tmp_path, "a", [3.0, 4.0], "a"), _traced(tmp_path, "b", [3.0, 4.5], "b", "tensorflow")]
    (row,) = outputs(group_by_system(members)).table.to_dicts()
    assert (row["trace"], row["reference"], row["framework"], row["reference_framework"]) == (
        "b", "a", "tensorflow 1", "pytorch 1",
    )  # fmt: skip
    assert (row["max_abs_difference"], row["relative_l2"]) == (0.5, pytest.approx(0.1))
    assert (row["basis"], row["input_match"]) == ("sampled values", "same")


def test_the_page_has_what_traces_say_and_no_section_of_what_they_do_not(tmp_path: Path) -> None:
    members = [_traced(tmp_path, "a", [3.0, 4.0], "a"), _traced(tmp_path, "b", [3.0, 4.5], "b", "tensorflow")]
    page = render(group_by_system(members), title="t", target=Target("top1", 0.9))
    assert "Outputs of one model" in page
    assert "Accuracy and time to a target" not in page
    assert [r.analysis.id for r in tables(group_by_system([member("net")]))] == ["B13"]


@pytest.mark.parametrize("text", ["top1", "=0.9", "top1=much", "top1=nan"])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(XspError, match="no target"):
        read_target(text)


def test_a_run_without_spans_has_the_latency_that_was_timed_around_its_steps(tmp_path: Path) -> None:
    traced = _traced(tmp_path, "a", [3.0, 4.0], "a")
    (row,) = models(group_by_system([traced])).table.to_dicts()
    assert (row["batch_size"], row["latency_ns"]) == (1, 1_001_000)  # of 1.000, 1.001 and 1.002 ms
