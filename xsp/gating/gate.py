"""Captures of a region held against those of a baseline, by the rules of `xsp compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from xsp.comparing.runs import Request, of_traces
from xsp.opening import load
from xsp.reading import Reading
from xsp_analyze.compare.rules import Several, parse
from xsp_analyze.pages.compare.text import terminal
from xsp_model import Trace

__all__ = ["DEFAULT_RULE", "Judgement", "Verdict", "judged", "opened"]

DEFAULT_RULE = "model.latency > +3%"
_ROWS = 5
_SIDES = ("baseline", "now")


class Verdict(StrEnum):
    """What a gate says of a change."""

    PASSED = "passed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and the comparison as a terminal shows it."""

    verdict: Verdict
    text: str
    ratio: float | None  # latency after over before; null: unknown


def opened(captures: Sequence[Path]) -> list[Trace]:
    """The trace of each capture; XspError where one cannot be read."""
    return [load([str(path)], Reading(), lambda _: None) for path in captures]


def judged(before: Sequence[Trace], after: Sequence[Trace], rules: Sequence[str] = (DEFAULT_RULE,)) -> Judgement:
    """What the rules say of these captures; XspError where they cannot be held against each other."""
    compared = of_traces(before, after, _SIDES, Request(rules=[parse(rule) for rule in rules]))
    several = Several([compared])
    verdict = Verdict.PASSED
    if several.any_violated or several.any_undecided:
        verdict = Verdict.REGRESSED if several.any_violated else Verdict.INCONCLUSIVE
    comparison = compared.comparison
    return Judgement(verdict, terminal(comparison, compared.outcomes, rows=_ROWS), comparison.latency.ratio)
