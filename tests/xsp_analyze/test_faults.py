"""A fault of our own in one analysis or section costs that alone, in one sentence; in tests it is loud."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import xsp_analyze.catalog
import xsp_analyze.core
import xsp_analyze.faults
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from tests.helpers.report_trace import small_trace
from xsp.cli.main import main
from xsp_analyze.core import ContractError, run
from xsp_analyze.faults import FaultWarning, fault_of
from xsp_analyze.pages.report import detail
from xsp_analyze.pages.report.page import render_answers
from xsp_analyze.service.answers import Answers
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.trace.step_view import StepView


@pytest.fixture(name="failing")
def fixture_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A10 and B01 fail."""

    def failing(one: Analysis, frames: StepView) -> Result:
        if one.id in {"A10", "B01"}:
            raise TypeError("no such sum")
        return run(one, frames)

    monkeypatch.setattr(xsp_analyze.core, "run", failing)
    monkeypatch.setattr(xsp_analyze.catalog, "run", failing)


def _data(page: str) -> Any:  # noqa: ANN401 (JSON)
    match = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


@pytest.mark.slow
@pytest.mark.usefixtures("failing")
def test_a_report_is_written_without_what_fails_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    target = tmp_path / "r.html"
    with pytest.warns(FaultWarning):
        assert main(["report", str(tmp_path / "small.json"), "-o", str(target), "--no-cache"]) == 0
    lines = capsys.readouterr().err.splitlines()[1:]
    assert len(lines) == 2
    assert lines[0].startswith("not in the report: ")
    page = target.read_text(encoding="utf-8")
    data = _data(page)
    missing = {one["id"]: f"{one['why']} {one['how']}" for one in data["missing"]}
    assert "A10 (kernels by name) failed (TypeError" in missing["kernels"]
    assert "no such sum). It is a fault of XSP: report it." in missing["kernels"]
    shown = {one["id"] for one in data["sections"]}
    assert {"layers", "gpu", "devices", "analyses"} <= shown
    assert "kernels" not in shown


def test_a_section_that_fails_is_left_out_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(answers: Answers) -> None:
        raise KeyError(answers.basis)

    trace = small_trace(tmp_path)
    sections = (("layers", "Layers", failing), ("gpu", "GPU by layer", detail.gpu_by_layer))
    monkeypatch.setattr("xsp_analyze.pages.report.page._SECTIONS", sections)
    with pytest.warns(FaultWarning):
        data = _data(render_answers(Answers(trace)))
    assert [one["id"] for one in data["sections"]] == ["gpu"]
    (why,) = (one["why"] for one in data["missing"] if one["id"] == "layers")
    assert why.startswith("The section 'Layers' failed (KeyError in test_faults.py:")


@pytest.mark.slow
@pytest.mark.usefixtures("failing")
def test_what_can_be_answered_is_and_the_status_says_that_not_all_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    ask = ["analyze", str(tmp_path / "small.json"), "--no-cache", "-f", "csv"]
    with pytest.warns(FaultWarning):
        assert main([*ask, "-a", "A10", "-a", "A02"]) == 4
    output = capsys.readouterr()
    assert output.out.startswith("layer_index,")
    assert output.err.startswith("error: A10 (kernels by name) failed (TypeError in test_faults.py:")
    assert output.err.count("\n") == 1
    assert main([*ask, "-a", "B14", "-a", "A02", "-o", str(tmp_path / "out")]) == 4
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["A02.csv"]
    assert "B14 (energy) needs" in capsys.readouterr().err
    assert main([*ask, "-a", "B14", "-a", "B20"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("error: ")) == ("", 2)
    with pytest.warns(FaultWarning):
        assert main([*ask, "-a", "A10"]) == 2
    with pytest.warns(FaultWarning):
        assert main([*ask, "-o", str(tmp_path / "all")]) == 4
    assert {file.name for file in (tmp_path / "all").iterdir()} > {"A02.csv", "A08.csv"}


def test_everything_that_can_be_answered_is_status_0(tmp_path: Path) -> None:
    small_trace(tmp_path)
    assert main(["analyze", str(tmp_path / "small.json"), "--no-cache", "-o", str(tmp_path / "all"), "-f", "csv"]) == 0


@pytest.mark.parametrize("error", [XspError("no"), MemoryError(), OSError(28, "full"), KeyboardInterrupt()])
def test_what_is_no_fault_of_ours_stays_what_it_is(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, fault_of("A10"):
        raise error
    assert raised.value is error


def test_a_fault_is_an_error_where_warnings_are() -> None:
    with pytest.raises(FaultWarning), fault_of("A10"):
        raise ContractError("two rows of one key")


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
def test_a_fault_whose_text_is_no_utf_8_costs_no_more_than_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(one: Analysis, _: StepView) -> Result:
        raise ValueError(f"a half \ud800 of a character\x1b[2J of {one.id}")

    monkeypatch.setattr(xsp_analyze.catalog, "run", failing)
    answers = Answers(small_trace(tmp_path))
    page = render_answers(answers)
    assert "a half" in page.encode().decode()
    assert all(f"{fault.what}{fault}".isprintable() for fault in answers.faults)


def test_a_bundle_that_breaks_the_rules_is_to_blame_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    damage = XspError("spans are not in order of start")
    monkeypatch.setattr(xsp_analyze.faults, "broken_bundle", lambda: damage)
    with pytest.raises(XspError) as raised, fault_of("A10"):
        raise ValueError("oh")
    assert raised.value is damage


@pytest.mark.slow
@every(SOUND)
def test_no_report_of_a_fixture_lacks_anything_by_a_fault(case: FixtureCase) -> None:
    answers = Answers(trace_of(case))
    render_answers(answers)
    assert answers.faults == []
