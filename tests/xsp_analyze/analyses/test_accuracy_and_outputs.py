"""B36: accuracies as a run says them, and distances of outputs worked out on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.recorded_results import recorded_tensor, run_of
from tests.helpers.synth import KinetoTrace
from xsp_analyze.analyses.outputs import accuracy_and_outputs
from xsp_analyze.core import run
from xsp_analyze.frames.outputs import Basis, InputMatch, RecordedTensor, distance, input_match
from xsp_analyze.merge.merge import merge
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_INPUT = recorded_tensor("input", "input", [1.0, 2.0], "1")
_WEIGHTS = recorded_tensor("weights", "weights", [0.5], "2")


def _rows(trace: Trace) -> list[dict[str, Any]]:
    return run(accuracy_and_outputs, StepView.of(trace)).table.to_dicts()


def test_what_a_run_says_of_its_accuracy_is_a_row(tmp_path: Path) -> None:
    accuracy = {"metric": "top1", "value": 0.75, "unit": "share", "dataset": "ImageNet", "samples": 50_000}
    curve = [{"metric": "top1", "time_s": t, "value": v} for t, v in ((20, 0.7), (10, 0.5))]
    rows = _rows(run_of(tmp_path, accuracies=[accuracy], training_curve=curve))
    shown = [(r["kind"], r["name"], r["dataset"], r["time_ns"], r["value"], r["sample_count"]) for r in rows]
    assert shown == [
        ("accuracy", "top1", "ImageNet", None, 0.75, 50_000),
        ("training curve", "top1", None, 10_000_000_000, 0.5, None),
        ("training curve", "top1", None, 20_000_000_000, 0.7, None),
    ]


def test_outputs_of_a_later_run_of_a_profile_are_compared_with_those_of_the_first(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    (tmp_path / "MLG").mkdir()
    kineto.write(tmp_path / "MLG" / "trace.json")
    profiled = [_INPUT, _WEIGHTS, recorded_tensor("output", "output", [3.0, 4.5], "b")]
    files = [{"path": "trace.json", "format": "torch_profiler"}]
    deep: dict[str, Any] = {"level": "MLG", "files": files, "steps": 0, "step_durations_ns": []}
    plain = [_INPUT, _WEIGHTS, recorded_tensor("output", "output", [3.0, 4.0], "a")]
    profile = merge([run_of(tmp_path / "M", tensors=plain), run_of(tmp_path / "MLG", tensors=profiled, **deep)])
    first, second = (r for r in _rows(profile) if r["kind"] == "output")
    assert (first["role"], first["reference"], first["relative_l2"]) == ("model", None, None)
    assert (second["role"], second["reference"], second["basis"]) == ("kernels", "model", "sampled values")
    assert (second["max_abs_difference"], second["compared_count"], second["input_match"]) == (0.5, 2, "same")
    assert second["relative_l2"] == pytest.approx(0.1)


def test_a_distance_is_what_paper_says() -> None:
    ours = RecordedTensor("output", "o", shape="[1, 2]", sha256="a", sampled_values="[3.0, 4.0]", top1="[1]")
    theirs = RecordedTensor("output", "o", shape="[1, 2]", sha256="b", sampled_values="[3.0, 4.5]", top1="[1]")
    apart = distance(ours, theirs)
    assert apart is not None
    assert (apart.basis, apart.value_count, apart.max_abs_difference) == (Basis.SAMPLED, 2, 0.5)
    assert apart.relative_l2 == pytest.approx(0.5 / 5)
    assert apart.cosine == pytest.approx((9 + 18) / (5 * (9 + 4.5**2) ** 0.5))
    assert (apart.top1_agreement, apart.top1_rows) == (1.0, 1)


def test_equal_digests_are_equal_in_all_elements() -> None:
    one = RecordedTensor("output", "o", shape="[2]", dtype="float32", value_count=2, sha256="a", l2_norm=5.0)
    apart = distance(one, one)
    assert apart is not None
    assert apart.is_identical
    assert (apart.max_abs_difference, apart.relative_l2, apart.cosine, apart.value_count) == (0.0, 0.0, 1.0, 2)


def test_other_digests_without_values_say_only_that_they_differ() -> None:
    ours, theirs = (RecordedTensor("output", "o", shape="[2]", sha256=s) for s in "ab")
    apart = distance(ours, theirs)
    assert apart is not None
    assert (apart.basis, apart.max_abs_difference, apart.relative_l2) == (Basis.CHECKSUM, None, None)
    assert distance(ours, RecordedTensor("output", "o", shape="[3]", sha256="b")) is None


def _inputs(digest: str, value: float, dtype: str = "float32") -> list[RecordedTensor]:
    shared = {"shape": "[1]", "dtype": dtype, "sha256": digest, "sampled_values": f"[{value}]"}
    return [RecordedTensor("input", "x", **shared), RecordedTensor("weights", "w", **shared)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (_inputs("a", 1.0), InputMatch.YES),
        (_inputs("b", 1.001953125, "bfloat16"), InputMatch.ROUNDED),
        (_inputs("b", 1.5, "bfloat16"), InputMatch.NO),
        (_inputs("b", 1.0000001), InputMatch.NO),
        (_inputs("a", 1.0)[:1], InputMatch.UNKNOWN),
        ([], InputMatch.UNKNOWN),
    ],
)
def test_whether_both_were_given_the_same_is_said(other: list[RecordedTensor], expected: InputMatch) -> None:
    assert input_match(_inputs("a", 1.0), other) is expected


def test_a_run_that_records_neither_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="B36"):
        _rows(run_of(tmp_path))
