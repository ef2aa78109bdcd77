"""A trace at a glance, for a page that lists many: what its step is made of, and the first finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.pages.report.step_bar import step_bar

if TYPE_CHECKING:
    from xsp_analyze.service.answers import Answers

__all__ = ["glance"]


def glance(answers: Answers) -> dict[str, Any]:
    """`bar` (title, total_ns, parts of label, tone and time_ns) and `finding`; null where there is none.

    `finding` is the first that has something to gain: id, title, gain_ns and gain_share (of latency).
    """
    return {"bar": _bar(answers), "finding": _first_finding(answers)}


def _bar(answers: Answers) -> dict[str, Any] | None:
    bar = step_bar(answers)
    if bar is None:
        return None
    parts = [{"label": part["label"], "tone": part["tone"], "time_ns": part["time"]} for part in bar["parts"]]
    return {"title": bar["title"], "total_ns": bar["total"], "parts": parts}


def _first_finding(answers: Answers) -> dict[str, Any] | None:
    first = next((one for one in answers.advice if not one.rule.on_trust), None)
    if first is None:
        return None
    return {"id": first.rule.id, "title": first.rule.title, "gain_ns": first.gain_ns, "gain_share": first.gain_share}
