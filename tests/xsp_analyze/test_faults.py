"""A fault of our own in one analysis or section costs that alone, in one sentence; in tests it is loud."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import xsp_analyze.catalog
import xsp_analyze.core
import xsp_analyze.faults
import xsp_analyze.findings.registry
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from tests.helpers.rank_traces import rank_trace, write_rank
from tests.helpers.report_trace import small_trace
from xsp.agents.answers import ServedAnswers as AgentsAnswers
from xsp.agents.service import Service, name_inputs
from xsp.api.open_trace import OpenTrace
from xsp.batch.discover import discover
from xsp.batch.pages import index_page, note_faults
from xsp.batch.summary import summary
from xsp.batch.unit import Settings, Unit
from xsp.batch.work import process
from xsp.cli.main import main
from xsp_analyze.core import ContractError, run
from xsp_analyze.faults import FaultWarning, fault_of, noting_faults
from xsp_analyze.findings import RULES
from xsp_analyze.pages.ranks import render as render_job
from xsp_analyze.pages.report import detail
from xsp_analyze.pages.report.page import render_answers
from xsp_analyze.ranks.job import Job, open_job
from xsp_analyze.service import Answers
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from xsp.batch.unit import UnitOutcome
    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.findings import Rule
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
        assert main(["report", str(tmp_path / "small.json"), "-o", str(target), "--no-cache"]) == 4
    lines = capsys.readouterr().err.splitlines()[1:]
    assert len(lines) == 2
    assert lines[0].startswith("error: A10 (kernels by name) failed (TypeError")
    page = target.read_text(encoding="utf-8")
    data = _data(page)
    missing = {one["id"]: f"{one['why']} {one['how']}" for one in data["missing"]}
    assert "A10 (kernels by name) failed (TypeError" in missing["kernels"]
    assert "no such sum). It is a fault of XSP: report it." in missing["kernels"]
    shown = {one["id"] for one in data["sections"]}
    assert {"layers", "gpu", "devices", "analyses"} <= shown
    assert "kernels" not in shown


@pytest.mark.slow
@pytest.mark.usefixtures("failing")
def test_a_batch_says_what_its_reports_are_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(units: Sequence[Unit], settings: Settings, **_: int) -> Generator[UnitOutcome]:
        yield from (process(unit, settings) for unit in units)

    monkeypatch.setattr("xsp.batch.pool.run_here", here)
    small_trace(tmp_path)
    for is_kept in (False, True):
        with nullcontext() if is_kept else pytest.warns(FaultWarning):
            assert main(["batch", str(tmp_path / "small.json"), "-o", str(tmp_path / "out")]) == 4
        out = capsys.readouterr().out
        assert "failed in part: small: A10 (kernels by name) failed (TypeError in test_faults.py:" in out
        document = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
        (row,) = document["traces"]
        assert row["status"] == "ok"
        assert {sentence[:3] for sentence in row["faults"]} == {"A10", "B01"}
        sections = _data((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))["sections"]
        (listed,) = (section["blocks"] for section in sections if section["id"] == "faults")
        assert len(listed) == 2
        assert listed[0]["text"].startswith("small: A10")
        assert "no such sum" in listed[0]["text"]


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
    assert output.out.startswith("# A02 layer information\nlayer_index,")  # several were asked for
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


_FAULT = re.compile(r"^error: .*failed \((?:TypeError|FaultError)[^)]* in test_faults\.py:\d+", re.MULTILINE)
_CLI = [
    # The command, its status where A10 and B01 fail, and what it answers nevertheless.
    (["report", "{trace}", "-o", "{out}.html"], 4, "GPU by layer"),
    (["analyze", "{trace}", "-a", "A10", "-a", "A02", "-f", "csv"], 4, "layer_index,"),
    (["analyze", "{trace}", "-a", "A10"], 2, ""),
    (["top", "{trace}"], 4, "Layers by latency"),
    (["top", "{trace}", "-f", "md"], 4, "Layers by latency"),
    (["top", "{trace}", "-f", "csv"], 4, "layers_by_latency"),
    (["top", "{trace}", "-f", "json"], 4, '"failed": ['),
    (["query", "{trace}", "select * from A10"], 2, ""),
    (["figure", "{trace}", "-a", "A10", "-o", "{out}.svg"], 2, ""),
]


@pytest.mark.usefixtures("failing")
@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
@pytest.mark.parametrize(("command", "status", "answer"), _CLI, ids=str)
def test_a_command_says_what_failed_and_answers_the_rest(
    command: Sequence[str], status: int, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command[0] == "figure":
        pytest.importorskip("matplotlib")
    small_trace(tmp_path)
    paths = {"trace": tmp_path / "small.json", "out": tmp_path / "out"}
    assert main([*(part.format_map(paths) for part in command), "--no-cache"]) == status
    output = capsys.readouterr()
    assert _FAULT.search(output.err), output.err
    assert "Traceback" not in output.err
    written = "".join(file.read_text(encoding="utf-8") for file in tmp_path.glob("out.*"))
    assert answer in f"{output.out}{written}"
    assert bool(f"{output.out}{written}") == (status == 4)


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
@pytest.mark.parametrize("command", ["report", "top", "findings", "cohort", "analyze"])
def test_a_command_of_which_every_analysis_fails_says_each(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xsp_analyze.catalog, "run", _fail)
    small_trace(tmp_path)
    to = {"report": ["-o", str(tmp_path / "r.html")], "analyze": ["-a", "A02"]}.get(command, [])
    assert main([command, str(tmp_path / "small.json"), "--no-cache", *to]) == (2 if command == "analyze" else 4)
    output = capsys.readouterr()
    assert _FAULT.search(output.err), output.err
    assert "Traceback" not in output.err
    assert "the trace says of no device work" not in output.out


def _fail(*_: object, **__: object) -> Any:  # noqa: ANN401 (in place of anything)
    raise TypeError("no such sum")


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
@pytest.mark.parametrize("output_format", ["text", "md", "json"])
def test_a_rule_that_fails_costs_that_rule(
    output_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    ask = ["findings", str(tmp_path / "small.json"), "--no-cache", "-f", output_format]
    assert main(ask) == 0
    before = capsys.readouterr().out
    assert "few-steps" in before
    monkeypatch.setattr(xsp_analyze.findings.registry, "RULES", _rules_of_which_one_fails())
    target = tmp_path / "findings"
    assert main(ask) == 4
    output = capsys.readouterr()
    assert "error: The rule few-steps (" in output.err
    assert "few-steps" not in output.out
    assert "orphans" in output.out
    assert main([*ask, "-o", str(target)]) == 4
    assert ("no such sum" in target.read_text(encoding="utf-8")) == (output_format != "json")


def _rules_of_which_one_fails() -> list[Rule]:
    return [replace(rule, find=_fail) if rule.id == "few-steps" else rule for rule in RULES]


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
def test_findings_in_python_for_agents_and_in_a_report_say_what_rules_could_not_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = small_trace(tmp_path)
    monkeypatch.setattr(xsp_analyze.findings.registry, "RULES", _rules_of_which_one_fails())
    findings = OpenTrace(trace).findings()
    assert len(findings) >= 1
    assert ["The rule few-steps" in sentence for sentence in findings.failed] == [True]
    assert str(findings).startswith("The rule few-steps")
    assert "no such sum" in findings._repr_html_()
    agent = AgentsAnswers(Service(name_inputs([str(tmp_path / "small.json")])))
    for _ in range(2):  # the second from what is kept
        answer: Any = agent.answer("findings", {})
        assert ["The rule few-steps" in sentence for sentence in answer["failed"]] == [True]
        assert answer["rows"]
    assert "failed" not in agent.answer("analyze", {"analysis": "A02"})
    data = _data(render_answers(Answers(trace)))
    (to_do,) = (one for one in data["sections"] if one["id"] == "next")
    assert "The rule few-steps" in to_do["blocks"][0]["text"]


@pytest.mark.usefixtures("failing")
@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
def test_an_analysis_that_fails_is_one_sentence_for_agents_and_in_python(tmp_path: Path) -> None:
    trace = OpenTrace(small_trace(tmp_path))
    with pytest.raises(XspError, match=r"A10 \(kernels by name\) failed"):
        trace.analyze("A10")
    with pytest.raises(XspError, match=r"A10 \(kernels by name\) failed"):
        trace.sql("select * from A10")
    agent = AgentsAnswers(Service(name_inputs([str(tmp_path / "small.json")])))
    with pytest.raises(XspError, match=r"A10 \(kernels by name\) failed"):
        agent.answer("analyze", {"analysis": "A10"})


_PARTS = ["layer_rows", "operator_rows", "kernel_rows", "kernel_class_rows", "layer_type_rows", "block_rows", "moves",
          "pair_layers", "explain_difference", "results", "match_kernels", "kernel_partners"]  # fmt: skip


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
@pytest.mark.parametrize("part", _PARTS)
def test_a_comparison_is_made_without_what_fails_and_says_so(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    shutil.move(tmp_path / "small.json", tmp_path / "before.json")
    small_trace(tmp_path, kernels=4)
    monkeypatch.setattr(f"xsp_analyze.compare.comparison.{part}", _fail)
    sides = [str(tmp_path / "before.json"), str(tmp_path / "small.json")]
    assert main(["compare", *sides, "--no-cache", "-f", "json", "--html", str(tmp_path / "c.html")]) == 4
    output = capsys.readouterr()
    assert _FAULT.search(output.err), output.err
    document = json.loads(output.out)
    assert document["model"]["ratio"] == pytest.approx(1, abs=0.01)
    assert "no such sum" in document["failed"][0]
    assert document["rows"]
    assert "NOT IN THIS COMPARISON" in (tmp_path / "c.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
def test_a_comparison_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    monkeypatch.setattr("xsp_analyze.compare.comparison.model_rows", _fail)
    assert main(["compare", *[str(tmp_path / "small.json")] * 2, "--no-cache"]) == 2
    assert capsys.readouterr().err.startswith("error: The comparison of ")


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
def test_a_cohort_and_a_batch_name_the_trace_of_which_something_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_trace(tmp_path)
    monkeypatch.setattr("xsp_analyze.cohort.facts.operator_mix", _fail)
    page = tmp_path / "cohort.html"
    assert main(["cohort", str(tmp_path / "small.json"), "--no-cache", "-o", str(page)]) == 4
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: small: The mix of operators failed (TypeError")
    data = _data(page.read_text(encoding="utf-8"))
    assert [one["id"] for one in data["sections"]][:2] == ["faults", "models"]
    settings = Settings(str(tmp_path / "out"), reports=False)
    outcome = process(Unit("small", (str(tmp_path / "small.json"),)), settings)
    assert outcome.facts is not None
    assert "The mix of operators failed" in outcome.facts["faults"][0]
    document = summary(
        [outcome], [], discover([str(tmp_path / "small.json")], "", ranks=False, format_name=None), settings
    )
    with noting_faults() as faults:
        note_faults(document)
    assert [str(fault).startswith("small: The mix of operators failed") for fault in faults] == [True]
    assert "small: The mix of operators failed" in index_page(document)


@pytest.mark.filterwarnings("ignore::xsp_analyze.faults.FaultWarning")
@pytest.mark.parametrize("part", ["by_step", "by_kernel", "by_rank_and_step"])
def test_the_page_of_ranks_is_made_without_what_fails(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, rank_trace(4, 3))
    monkeypatch.setattr(Job, part, _fail)
    data = _data(render_job(open_job(tmp_path, "job"), in_part=["rank-1: A10 failed"]))
    shown = {one["id"]: one for one in data["sections"]}
    assert {"faults", "R01", "R03"} <= set(shown)
    texts = [block["text"] for block in shown["faults"]["blocks"]]
    assert texts[0] == "rank-1: A10 failed."
    assert any("no such sum" in text for text in texts[1:])


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
    with noting_faults() as faults:
        page = render_answers(Answers(small_trace(tmp_path)))
    assert "a half" in page.encode().decode()
    assert faults
    assert all(f"{fault.what}{fault}".isprintable() for fault in faults)


def test_a_bundle_that_breaks_the_rules_is_to_blame_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    damage = XspError("spans are not in order of start")
    monkeypatch.setattr(xsp_analyze.faults, "broken_bundle", lambda: damage)
    with pytest.raises(XspError) as raised, fault_of("A10"):
        raise ValueError("oh")
    assert raised.value is damage


@pytest.mark.slow
@every(SOUND)
def test_no_report_of_a_fixture_lacks_anything_by_a_fault(case: FixtureCase) -> None:
    with noting_faults() as faults:
        render_answers(Answers(trace_of(case)))
    assert faults == []
