"""Accuracies and outputs of both sides: what is said of a faster run that does not come to the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.recorded_results import recorded_tensor, run_of
from xsp_analyze.compare.comparison import Comparison, compare
from xsp_analyze.frames.outputs import Basis, InputMatch
from xsp_analyze.pages.compare.files import markdown, render, terminal
from xsp_analyze.pages.compare.page import page
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from pathlib import Path

_INPUTS = [recorded_tensor("input", "input", [1.0], "1"), recorded_tensor("weights", "weights", [2.0], "2")]
_BEFORE = [*_INPUTS, recorded_tensor("output", "output", [3.0, 4.0], "a", top1=[1])]


def _compared(folder: Path, before: dict[str, Any], after: dict[str, Any], *, after_ns: int = 500_000) -> Comparison:
    sides = run_of(folder / "before", **before), run_of(folder / "after", ns=after_ns, **after)
    return compare(*([StepView.of(trace)] for trace in sides))


def _printed(comparison: Comparison) -> str:
    return " ".join(terminal(comparison).split())


def test_a_faster_run_whose_outputs_differ_is_said_plainly(tmp_path: Path) -> None:
    after = [*_INPUTS, recorded_tensor("output", "output", [3.0, 4.5], "b", top1=[0])]
    c = _compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after})
    (pair,) = c.results.outputs
    assert (pair.distance.basis, pair.distance.max_abs_difference) == (Basis.SAMPLED, 0.5)
    assert pair.distance.relative_l2 == pytest.approx(0.1)
    assert pair.distance.top1_agreement == 0.0
    assert c.results.input_match is InputMatch.YES
    printed = _printed(c)
    assert "FASTER, BUT ITS OUTPUTS DIFFER: output by 10.0 % of its L2 norm, at most 0.500" in printed
    assert "in 0 % of 1 row, over 2 of 2 elements." in printed
    assert "same weights and inputs, by checksum" in printed
    assert "Accuracy and outputs" in printed
    assert "FASTER, BUT ITS OUTPUTS DIFFER" in markdown(c)
    assert "FASTER, BUT ITS OUTPUTS DIFFER" in page(c)


def test_a_slower_run_is_not_called_faster(tmp_path: Path) -> None:
    after = [*_INPUTS, recorded_tensor("output", "output", [3.0, 4.5], "b")]
    printed = _printed(_compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after}, after_ns=2_000_000))
    assert "OUTPUTS DIFFER: output" in printed
    assert "FASTER" not in printed


def test_outputs_of_the_same_bytes_are_the_same(tmp_path: Path) -> None:
    printed = _printed(_compared(tmp_path, {"tensors": _BEFORE}, {"tensors": _BEFORE}))
    assert "Outputs are the same to the byte (1 output)." in printed


def test_without_checksums_of_what_was_given_nothing_follows(tmp_path: Path) -> None:
    after = [recorded_tensor("output", "output", [3.0, 4.5], "b")]
    printed = _printed(_compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after}))
    assert "Outputs differ: output" in printed
    assert "not known to be the same" in printed
    assert "FASTER" not in printed


def test_a_distance_of_all_elements_that_the_run_says_itself_goes_first(tmp_path: Path) -> None:
    own = {"name": "output", "reference": "fp32", "reference_sha256": "a" * 64, "relative_l2": 0.125}
    other = {**own, "reference": "elsewhere", "reference_sha256": "c" * 64, "relative_l2": 0.5}
    after = [*_INPUTS, recorded_tensor("output", "output", [3.0, 4.5], "b")]
    c = _compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after, "output_distances": [other, own]})
    assert (c.results.outputs[0].distance.basis, c.results.outputs[0].distance.relative_l2) == (Basis.RECORDED, 0.125)


def test_outputs_after_other_numbers_of_steps_say_so(tmp_path: Path) -> None:
    after = [*_INPUTS, recorded_tensor("output", "output", [3.0, 4.5], "b", step=9)]
    assert "after 3 and 9 steps" in _printed(_compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after}))


def test_outputs_of_another_shape_have_no_counterpart(tmp_path: Path) -> None:
    after = [*_INPUTS, recorded_tensor("output", "output", [1.0, 2.0, 3.0], "b")]
    c = _compared(tmp_path, {"tensors": _BEFORE}, {"tensors": after})
    assert (c.results.outputs, c.results.unmatched) == ([], ["output"])
    assert "without a counterpart of their shape: output" in _printed(c)


def _top1(value: float, **changes: object) -> dict[str, Any]:
    return {"accuracies": [{"metric": "top1", "value": value, "unit": "share", "dataset": "ImageNet", **changes}]}


def test_a_faster_run_that_is_less_accurate_is_said_plainly(tmp_path: Path) -> None:
    c = _compared(tmp_path, _top1(0.76, samples=50_000), _top1(0.70, samples=50_000))
    (pair,) = c.results.accuracies
    assert pair.reach == pytest.approx(1.96 * (0.76 * 0.24 / 50_000 + 0.7 * 0.3 / 50_000) ** 0.5, rel=1e-4)
    assert pair.is_worse
    assert "FASTER BUT LESS ACCURATE: top1 on ImageNet (50 000 samples): 76.0 % before, 70.0 % after." in _printed(c)


def test_a_difference_that_so_few_samples_allow_is_no_loss(tmp_path: Path) -> None:
    c = _compared(tmp_path, _top1(0.76, samples=100), _top1(0.70, samples=100))  # reaches 0.122
    assert c.results.accuracies[0].is_worse is False
    assert "no more than so many samples let it vary" in _printed(c)


def test_a_metric_of_which_nobody_says_what_is_better_is_only_shown(tmp_path: Path) -> None:
    loss = [{"accuracies": [{"metric": "perplexity", "value": value}]} for value in (9.0, 10.0)]
    c = _compared(tmp_path, *loss)
    assert c.results.accuracies[0].is_worse is None
    assert "Accuracy: perplexity:" in _printed(c)


def test_a_metric_of_one_side_has_no_difference(tmp_path: Path) -> None:
    c = _compared(tmp_path, _top1(0.76), {})
    (pair,) = c.results.accuracies
    assert (pair.before, pair.after, pair.difference) == (0.76, None, None)
    assert json.loads(render(c))["results"]["accuracies"][0]["before"] == 0.76


def test_runs_without_spans_that_took_another_time_are_not_the_same(tmp_path: Path) -> None:
    c = _compared(tmp_path, {}, {})
    assert not c.same_content
    assert c.results.outputs == []


def test_precision_is_that_of_the_weights_where_no_layer_says_it(tmp_path: Path) -> None:
    weights = recorded_tensor("weights", "parameters", [1.0], "3", dtype="bfloat16")
    c = _compared(tmp_path, {"tensors": _INPUTS}, {"tensors": [weights]})
    assert [(d.what, d.before, d.after) for d in c.differences] == [("precision", "fp32", "bf16")]
