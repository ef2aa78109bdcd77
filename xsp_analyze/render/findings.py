"""Findings as text, Markdown and JSON."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from xsp_analyze.findings.advice import Basis, Evidence
from xsp_analyze.render.json_text import plain
from xsp_analyze.render.markdown import escape_markdown, table_lines
from xsp_analyze.text.table import clean, of_rows
from xsp_analyze.text.units import count, duration, plain_spaces, quantity, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.advice import Advice

__all__ = ["as_json", "as_markdown", "as_text", "documents", "evidence_of", "gain", "gain_of", "value_of"]

_NOTHING = "No rule found anything. Most rules look at device work, some at hardware counters."
_NEARLY = 0.95  # of the most: a simulation that gains it says no more
_DOUBTS = "How far to trust the numbers:"
_INDENT = "    "
_ALL = 0.995  # from there on a share is shown as whole


def value_of(evidence: Evidence) -> str:
    """The number as people read it."""
    if evidence.value is None:
        return "-"
    if evidence.unit == "share":
        return share(evidence.value)
    if evidence.unit:
        return quantity(evidence.value, evidence.unit)
    return count(evidence.value)


def gain_of(advice: Advice) -> str:
    """What is to be gained, as a phrase, also by simulation where that is less; empty for doubts."""
    if advice.rule.on_trust:
        return ""
    at_most, simulated_ns = gain(advice.gain_ns, advice.gain_share), advice.simulated_ns
    if simulated_ns is None or advice.gain_ns is None or simulated_ns > _NEARLY * advice.gain_ns:
        return at_most
    return f"{duration(simulated_ns)} by simulation, {at_most}"


def evidence_of(advice: Advice) -> Sequence[Evidence]:
    """What the finding rests on, and what a simulation gains."""
    seen = advice.observation.evidence
    if advice.simulated_ns is None or advice.gain_ns is None:
        return seen
    return [*seen, Evidence("gain by simulation", advice.simulated_ns)]


def gain(gain_ns: float | None, gain_share: float | None) -> str:
    """The most that can be gained, in time and as a share of latency."""
    if gain_ns is None:
        return "gain unknown"
    of_step = f", {share(gain_share)}" if gain_share is not None else ""
    return f"at most {duration(gain_ns)}{of_step}"


def as_text(advice: Sequence[Advice], width: int = 100, before: Sequence[str] = ()) -> str:
    """For a terminal: a heading a finding, then what was found, the evidence, and what to do; doubts apart.

    First the sentences `before`: what failed, so that rules could not look at it, and what bounds the run.
    """
    parts = ["\n".join(_lines(number, one, width)) for number, one in enumerate(advice, 1)] or [_NOTHING]
    doubts = [index for index, one in enumerate(advice) if one.rule.on_trust and not one.rule.first]
    if doubts:
        parts.insert(doubts[0], _DOUBTS)
    parts = [*(textwrap.fill(f"{sentence}.", max(width, 40)) for sentence in before), *parts]
    return plain_spaces("\n\n".join(parts) + "\n")


def _lines(number: int, one: Advice, width: int) -> Iterator[str]:
    note = "" if one.rule.on_trust else f": {gain_of(one)}"
    heading = f"{number:>2}. {one.rule.title} ({one.rule.id}){note}"
    yield textwrap.fill(heading, max(width, 40), subsequent_indent=_INDENT)
    evidence = ", ".join(f"{clean(e.label)} {value_of(e)}" for e in evidence_of(one))
    estimated = _estimate_sentence(one)
    texts = [
        clean(one.observation.sentence),
        f"Evidence: {evidence}." if evidence else "",
        estimated,
        f"To do: {one.do}",
    ]
    for text in filter(None, texts):
        yield textwrap.fill(text, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT)


def _estimate_sentence(one: Advice) -> str:
    """What the gain is estimated from, and how much of what the rule judges it covers, where that says anything."""
    covered = one.observation.coverage
    of_all = f", for {share(covered)} of what could be judged" if covered < _ALL else ""
    if one.gain_ns is None or one.rule.on_trust or (one.basis is Basis.MEASURED and not of_all):
        return ""
    return f"Estimated from {one.basis}{of_all}."


def as_markdown(advice: Sequence[Advice], before: Sequence[str] = ()) -> str:
    """A table, for a pull request or an issue; before it sentences, as in `as_text`."""
    head = "".join(f"{escape_markdown(sentence)}.\n\n" for sentence in before)
    if not advice:
        return f"{head}{_NOTHING}\n"
    columns = [("finding", "", False, 0), ("at most", "", True, 0), ("what was found", "", False, 0)]
    rows = [(f"{one.rule.title} ({one.rule.id})", gain_of(one), clean(one.observation.sentence)) for one in advice]
    return head + "\n".join(table_lines(of_rows("", columns, rows))) + "\n"


def as_json(advice: Sequence[Advice]) -> str:
    """An array in the order of the text, of `documents`."""
    return json.dumps(documents(advice), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def documents(advice: Sequence[Advice]) -> list[dict[str, object]]:
    """Each finding in JSON's own types; times in ns, shares 0..1, null unknown."""
    return [
        {
            "id": one.rule.id,
            "title": one.rule.title,
            "on_trust": one.rule.on_trust,
            "sentence": one.observation.sentence,
            "gain_ns": plain(one.gain_ns),
            "simulated_ns": plain(one.simulated_ns),
            "together_ns": plain(one.together_ns),
            "gain_share": plain(one.gain_share),
            "gain_basis": str(one.basis),
            "coverage": plain(one.observation.coverage),
            "evidence": [{"label": e.label, "value": plain(e.value), "unit": e.unit} for e in one.observation.evidence],
            "rows": one.observation.rows,
            "do": one.do,
        }
        for one in advice
    ]
