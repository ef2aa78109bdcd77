"""`python -m xsp_analyze.findings FOLDER` writes the pages of the docs anew: one a rule, from its own words."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.registry import RULES
from xsp_analyze.needs import CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.findings.advice import Rule
    from xsp_analyze.needs import Need

__all__ = ["pages"]

_INTRODUCTION = f"""# Findings

`xsp findings INPUT` and the head of `xsp report` say what in a trace is worth doing next. Each finding is a rule with a
threshold, and with circumstances without which it is silent: what the device is capable of, what is recorded, whether
work is in replays of graphs, whether there are several ranks. What promises most comes first; doubts about the numbers
stand apart, after it. Of two rules that tell of the same time only the one that says why is told, and nothing is told
that gains less than {limit.FLOOR:.0%} of a step.

What is to be gained is an upper bound of what a step becomes shorter by, each finding taken alone: gains overlap and do
not add up. Device work of several devices runs side by side, so the gain is that of the device where it is largest.
Where a gain cannot be known from the trace it is left open, and the finding stands where all the time that it is about
would be gained.

Thresholds are in `xsp_analyze/findings/thresholds.py`. A finding is a reason to look, no verdict: the rows that it
links to decide. How well they find what is planted in made traces is in
[planted bottlenecks](../planted-bottlenecks.md).
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


def _list_of_needs(needs: Sequence[Need]) -> str:
    return "\n".join(f"- {CONDITIONS[str(need)].clause}" for need in needs)


def _page(rule: Rule) -> str:
    explained = [f"[{other.title}]({other.id}.md)" for other in RULES if other.id in rule.explains]
    explains = f"{', '.join(explained)}: not told where this explains at least {limit.EXPLAINED:.0%} of its gain."
    parts = (
        ("When it is told", rule.fires),
        ("What it needs", _list_of_needs(rule.needs) or "Nothing more."),
        ("Why it matters", rule.why),
        ("What is to be gained", rule.gain if rule.on_trust else f"{rule.gain} Estimated from {rule.basis}."),
        ("What it explains", explains if explained else "No other finding."),
        ("What to do", rule.do),
        ("Where the threshold is from", rule.source),
    )
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts)
    return f"# {rule.title}\n\n`{rule.id}`, one of the [findings](README.md).\n\n{body}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m xsp_analyze.findings", description="Writes a page a rule.")
    parser.add_argument("folder", type=Path, help="made where it is missing")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
