"""Findings as text, Markdown and JSON."""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING

from xsp_analyze.findings.advice import Basis
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.markdown import table_lines
from xsp_analyze.render.shown import clean
from xsp_analyze.render.table import of_rows
from xsp_analyze.render.units import duration, quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.advice import Advice, Evidence

__all__ = ["as_json", "as_markdown", "as_text", "gain_of", "value_of"]

_NOTHING = "No rule found anything. Most rules look at device work, some at hardware counters."
_DOUBTS = "How far to trust the numbers:"
_INDENT = "    "
_WITH_UNIT = re.compile(r"(?<=\d) (%|[num\u00b5]?s|B|[KMG]iB)(?=[ ,;.)]|$)")
_ALL = 0.995  # from there on a share is shown as whole
_NO_UNIT = 10.0  # from there on a plain count is shown without decimals


def value_of(evidence: Evidence) -> str:
    """The number as people read it."""
    if evidence.value is None:
        return "-"
    if evidence.unit == "share":
        return share(evidence.value)
    if evidence.unit:
        return quantity(evidence.value, evidence.unit)
    return f"{evidence.value:,.0f}" if evidence.value >= _NO_UNIT else f"{evidence.value:,.3g}"


def gain_of(advice: Advice) -> str:
    """What is to be gained, as a phrase; empty for doubts."""
    if advice.rule.on_trust:
        return ""
    if advice.gain_ns is None:
        return "gain unknown"
    of_step = f", {share(advice.gain_share)}" if advice.gain_share is not None else ""
    return f"at most {duration(advice.gain_ns)}{of_step}"


def as_text(advice: Sequence[Advice], width: int = 100) -> str:
    """For a terminal: a heading a finding, then what was found, the evidence, and what to do; doubts apart."""
    if not advice:
        return _NOTHING + "\n"
    parts = ["\n".join(_lines(number, one, width)) for number, one in enumerate(advice, 1)]
    doubts = [index for index, one in enumerate(advice) if one.rule.on_trust]
    if doubts:
        parts.insert(doubts[0], _DOUBTS)
    return "\n\n".join(parts) + "\n"


def _lines(number: int, one: Advice, width: int) -> Iterator[str]:
    note = "" if one.rule.on_trust else f": {gain_of(one)}"
    yield f"{number:>2}. {one.rule.title} ({one.rule.id}){note}"
    evidence = ", ".join(f"{clean(e.label)} {value_of(e)}" for e in one.observation.evidence)
    estimated = _estimated(one)
    texts = [
        clean(one.observation.sentence),
        f"Evidence: {evidence}." if evidence else "",
        estimated,
        f"To do: {one.do}",
    ]
    for text in filter(None, texts):
        kept = _WITH_UNIT.sub("\u00a0\\1", text)  # a number and its unit stay on one line
        yield textwrap.fill(kept, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT).replace(
            "\u00a0", " "
        )


def _estimated(one: Advice) -> str:
    """What the gain is estimated from, and how much of what the rule judges it covers, where that says anything."""
    covered = one.observation.coverage
    of_all = f", for {share(covered)} of what could be judged" if covered < _ALL else ""
    if one.gain_ns is None or one.rule.on_trust or (one.basis is Basis.MEASURED and not of_all):
        return ""
    return f"Estimated from {one.basis}{of_all}."


def as_markdown(advice: Sequence[Advice]) -> str:
    """A table, for a pull request or an issue."""
    if not advice:
        return f"{_NOTHING}\n"
    columns = [("finding", "", False, 0), ("at most", "", True, 0), ("what was found", "", False, 0)]
    rows = [(f"{one.rule.title} ({one.rule.id})", gain_of(one), clean(one.observation.sentence)) for one in advice]
    return "\n".join(table_lines(of_rows("", columns, rows))) + "\n"


def as_json(advice: Sequence[Advice]) -> str:
    """An array in the order of the text; times in ns, shares 0..1, null unknown."""
    rows = [
        {
            "id": one.rule.id,
            "title": one.rule.title,
            "on_trust": one.rule.on_trust,
            "sentence": one.observation.sentence,
            "gain_ns": one.gain_ns,
            "gain_share": one.gain_share,
            "gain_basis": str(one.basis),
            "coverage": one.observation.coverage,
            "evidence": [{"label": e.label, "value": e.value, "unit": e.unit} for e in one.observation.evidence],
            "rows": one.observation.rows,
            "do": one.do,
        }
        for one in advice
    ]
    return json.dumps(plain(rows), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
