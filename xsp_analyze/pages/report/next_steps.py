"""The part of a report that says what is worth doing next, and how far its numbers can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.catalog import all_analyses
from xsp_analyze.pages import blocks
from xsp_analyze.render.findings import gain_of, value_of
from xsp_analyze.text.shown import clean

if TYPE_CHECKING:
    from xsp_analyze.findings import Advice
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service.answers import Answers

__all__ = ["gains_of", "next_steps"]

_MEANS = (
    "What rules with thresholds found, the most promising first. Gains are upper bounds of what a step becomes shorter"
    " by, each taken alone: they overlap and do not add up."
)
_FIRST = 5


def next_steps(answers: Answers) -> Section | None:
    """The five most promising findings, the others behind a button, then doubts about the numbers; None without any."""
    gains = gains_of(answers)
    doubts = [_item(one) for one in answers.advice if one.rule.on_trust]
    drawn: list[Block] = []
    if gains:
        drawn += [{"type": "advice", "items": gains, "first": _FIRST}]
    if doubts:
        drawn += [blocks.text("How far to trust the numbers:"), {"type": "advice", "items": doubts, "first": _FIRST}]
    return blocks.section("next", "What to do", "What to do next", _MEANS, drawn) if drawn else None


def gains_of(answers: Answers) -> list[dict[str, Any]]:
    """The findings with something to gain as the page draws them, most promising first."""
    return [_item(one) for one in answers.advice if not one.rule.on_trust]


def _item(one: Advice) -> dict[str, Any]:
    rule, observation = one.rule, one.observation
    return {
        "id": rule.id,
        "title": rule.title,
        "gain": gain_of(one),
        "share": one.gain_share,
        "sentence": clean(observation.sentence),
        "evidence": [{"label": clean(e.label), "value": value_of(e)} for e in observation.evidence],
        "rows": _section(observation.rows),
        "search": clean(observation.search),
        "do": one.do,
        "about": [
            ["Told when", rule.fires],
            ["Why it matters", rule.why],
            ["Gain", f"{rule.gain} Estimated from {one.basis}."],
            ["Source", rule.source],
        ],
        "page": f"docs/findings/{rule.id}.md",
    }


def _section(rows: str) -> str:
    """The section of the page that shows the rows of this analysis, or the analysis itself; rows may be of neither."""
    return next((a.section or a.id for a in all_analyses() if a.id == rows), rows)
