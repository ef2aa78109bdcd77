"""The part of a report that holds every analysis: how to read it, its figure, its table, its definition."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from xsp_analyze.analyses.kernels import kernel_information
from xsp_analyze.catalog import all_analyses
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.needs import holds
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.figures import figure
from xsp_analyze.pages.report.row_limits import MAX_ROWS, cut, cut_executions

if TYPE_CHECKING:
    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service.answers import Answers

__all__ = ["every_analysis"]

_OURS = re.compile(r"[AB]\d\d")  # reports that carry nsys' names say the same again in other columns
_MEANS = (
    "Every question that XSP asks of a trace, by the id that xsp analyze INPUT -a ID takes. Open one for how to read"
    " it, its figure, its table and its definition."
)


def every_analysis(answers: Answers) -> Section:
    """One entry an analysis; those that the trace cannot answer say why."""
    items = [
        answers.attempt(f"{one.id} ({one.title})", partial(_entry, answers, one), partial(_missing, one))
        for one in all_analyses()
        if _OURS.fullmatch(one.id)
    ]
    return blocks.section("analyses", "All analyses", "Every analysis", _MEANS, [{"type": "analyses", "items": items}])


def _entry(answers: Answers, one: Analysis) -> Block:
    answer, left_out, height = _answer(answers, one)
    if isinstance(answer, str):
        return _missing(one, answer)
    kept, left_out = (answer, left_out) if left_out else cut(answer)
    drawn = [*figure(answers, answer), blocks.table(kept, name=one.id, left_out=left_out)]
    return {**_about(one), "missing": None, "rows": height, "blocks": drawn}


def _about(one: Analysis) -> dict[str, str]:
    return {"id": one.id, "title": one.title, "read": one.read, "doc": " ".join(one.doc.split())}


def _missing(one: Analysis, why: object) -> Block:
    return {**_about(one), "missing": str(why), "blocks": []}


def _answer(answers: Answers, one: Analysis) -> tuple[Result | str, str | None, int]:
    """The answer, a sentence on rows that it is without already, and how many it has with them."""
    frames = answers.per_step
    if (
        one is kernel_information
        and holds(frames.of_trace, "kernel")
        and frames.once(kernel_executions).height > MAX_ROWS
    ):
        return *cut_executions(frames), frames.once(kernel_executions).height
    answer = answers.of(one.id)
    return answer, None, 0 if isinstance(answer, str) else answer.table.height
