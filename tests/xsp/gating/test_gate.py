"""The gate on real captures of a CPU: a planted slowdown fails it, and none does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gate import verdicts
from tests.helpers.stretched import stretched
from xsp.gating.gate import Verdict, folder_of, judge_captures, keep, open_captures, stored_captures

_CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.json.gz"))


@pytest.mark.slow
@pytest.mark.parametrize(("percent", "expected"), [(0.0, Verdict.PASSED), (5.0, Verdict.REGRESSED)])
def test_a_slowdown_of_five_percent_fails_and_none_does_not(percent: float, expected: Verdict) -> None:
    assert verdicts(_CAPTURES, percent, 20) == [expected] * 20  # each of five captures a side, drawn from forty


@pytest.mark.slow
def test_the_ratio_of_a_slowdown_is_told(tmp_path: Path) -> None:
    before, after = open_captures(_CAPTURES[:5]), open_captures(_CAPTURES[5:10])
    slower = open_captures([stretched(each, 1.05, tmp_path / each.name) for each in _CAPTURES[5:10]])
    as_it_is, planted = judge_captures(before, after), judge_captures(before, slower)
    assert planted.verdict is Verdict.REGRESSED
    assert as_it_is.ratio is not None
    assert planted.ratio == pytest.approx(1.05 * as_it_is.ratio, rel=1e-3)
    assert "model.latency > +3%" in planted.text


def test_each_test_has_a_folder_of_its_own_that_can_be_read(tmp_path: Path) -> None:
    one, two = (folder_of(tmp_path, f"tests/test_a.py::test_x[{value}]") for value in ("a b", "a/b"))
    assert one != two
    assert one.name.startswith("tests-test_a.py-test_x-a-b")
    assert len(folder_of(tmp_path, "x" * 5_000).name) < 100


def test_a_baseline_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "baselines" / "one"
    assert stored_captures(folder) == []
    keep(_CAPTURES[:3], folder)
    keep(_CAPTURES[3:5], folder)
    assert [path.name for path in stored_captures(folder)] == ["capture01.json.gz", "capture02.json.gz"]
    assert stored_captures(folder)[0].read_bytes() == _CAPTURES[3].read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == ["one"]
