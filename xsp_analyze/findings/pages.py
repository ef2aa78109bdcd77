"""The page in the docs of each rule, from the rule's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.findings.registry import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.findings.advice import Rule

__all__ = ["pages"]

_INTRODUCTION = """# Findings

`xsp findings INPUT` and the head of `xsp report` say what in a trace is worth doing next. Each finding is a rule with a
threshold. Doubts about the numbers come first, then what promises most.

What is to be gained is an upper bound of what a step becomes shorter by, each finding taken alone: gains overlap and do
not add up. Device work of several devices runs side by side, so the gain is that of the device where it is largest.
Where a gain cannot be known from the trace it is left open, and the finding stands last.

Thresholds are in `xsp_analyze/findings/thresholds.py`. A finding is a reason to look, no verdict: the rows that it
links to decide.
"""


def pages() -> Mapping[str, str]:
    """File name to Markdown: a page a rule, and README.md with the list."""
    return {"README.md": _index(), **{f"{rule.id}.md": _page(rule) for rule in RULES}}


def _index() -> str:
    doubts, gains = ([r for r in RULES if r.on_trust is on_trust] for on_trust in (True, False))
    listed = ["", "## How far to trust the numbers", "", *map(_line, doubts), "", "## What to do next", ""]
    return _INTRODUCTION + "\n".join([*listed, *map(_line, gains)]) + "\n"


def _line(rule: Rule) -> str:
    return f"- [{rule.title}]({rule.id}.md): {rule.fires[:1].lower()}{rule.fires[1:]}"


def _page(rule: Rule) -> str:
    parts = (
        ("When it is told", rule.fires),
        ("Why it matters", rule.why),
        ("What is to be gained", rule.gain),
        ("What to do", rule.do),
        ("Where the threshold is from", rule.source),
    )
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts)
    return f"# {rule.title}\n\n`{rule.id}`, one of the [findings](README.md).\n\n{body}\n"
