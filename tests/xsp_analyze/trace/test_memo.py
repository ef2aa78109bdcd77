"""What a view keeps: each frame and each answer is worked out once, by whoever asks first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import paper_trace
from xsp_analyze import catalog
from xsp_analyze.findings.facts import Facts
from xsp_analyze.findings.registry import RULES
from xsp_analyze.needs import CONDITIONS, is_need
from xsp_analyze.service import Answers
from xsp_analyze.trace.memo import Memo
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_analyze.findings.advice import Rule


class _Counting(Memo):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []


def _doubled(view: _Counting, number: int = 1) -> int:
    view.calls.append(number)
    return 2 * number


def _refused(view: _Counting) -> int:
    view.calls.append("refused")
    raise XspError("no")


def test_a_function_is_asked_once_for_each_of_its_arguments() -> None:
    view = _Counting()
    assert (view.once(_doubled), view.once(_doubled, 3), view.once(_doubled, 3)) == (2, 6, 6)
    assert view.calls == [1, 3]


def test_what_failed_is_not_kept() -> None:
    view = _Counting()
    for _ in range(2):
        with pytest.raises(XspError):
            view.once(_refused)
    assert view.calls == ["refused", "refused"]


def test_report_and_findings_ask_one_memo() -> None:
    answers = Answers(paper_trace())
    of_report = answers.of("B03")
    assert of_report is catalog.result(answers.per_step, "b03")
    assert not isinstance(of_report, str)
    assert Facts(answers.per_step).table("B03") is of_report.table


def test_what_cannot_be_answered_is_kept_as_its_reason() -> None:
    view = StepView.of(paper_trace())
    reason = catalog.outcome(view, "B38")
    assert isinstance(reason, XspError)
    assert reason is catalog.outcome(view, "B38")
    assert catalog.table(view, "B38") is None
    with pytest.raises(XspError, match=r"B38 .* needs"):
        catalog.result(view, "B38")
    with pytest.raises(XspError, match="no analysis 'B999'"):
        catalog.outcome(view, "B999")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_a_finding_needs_is_a_condition_with_a_clause(rule: Rule) -> None:
    assert all(is_need(need) and CONDITIONS[str(need)].clause for need in rule.needs)
