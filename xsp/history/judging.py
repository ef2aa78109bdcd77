"""A run held against the history of its series, by rules: for `xsp history gate` and for tests of pytest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.compare import rules as compare_rules
from xsp_analyze.history.causes import hold, outcomes
from xsp_analyze.history.facts import SERIES
from xsp_analyze.history.trends import cause_text, earlier_runs
from xsp_analyze.render.markdown import escape_markdown
from xsp_analyze.text.table import clean
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from xsp.history.store import Store
    from xsp_analyze.compare.rules import Rule, RuleOutcome
    from xsp_analyze.history.causes import Held

__all__ = ["Judged", "Verdict", "judge", "parse_rule"]

_CAUSES = 5
_STEP, _MODEL = "step.", "model."
_NEVER_NS = (1 << 63) - 1


class Verdict(StrEnum):
    """What a gate says of a run."""

    PASSED = "passed"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, what became of each rule, and how many earlier runs stood against it.

    none held: there are none, and `missing` says what is there instead.
    """

    verdict: Verdict
    outcomes: Sequence[RuleOutcome]
    held: Held | None
    earlier_count: int
    missing: str = ""

    @property
    def causes(self) -> list[str]:
        """What a change of the step is made of; none where it is no more than noise."""
        if self.held is None or not self.held.latency.significant:
            return []
        return [cause_text(row) for row in self.held.causes(_CAUSES)]

    @property
    def text(self) -> str:
        """The same in Markdown, for a terminal, chat and pull requests."""
        runs = f"{self.earlier_count} earlier run{'' if self.earlier_count == 1 else 's'}"
        lines = [f"**{self.verdict}**, held against {runs} of its series."]
        if not self.earlier_count:
            lines = [f"**{self.verdict}**: {escape_markdown(self.missing)}."]
        for outcome in self.outcomes:
            sentences = [escape_markdown(each.replace("model: ", "step: ", 1)) for each in outcome.sentences]
            lines.append(f"- `{outcome.rule.text}`: {outcome.verdict}{''.join(f'; {each}' for each in sentences)}")
        return "\n".join([*lines, *([f"- mostly {escape_markdown('; '.join(self.causes))}"] if self.causes else [])])


def parse_rule(text: str) -> Rule:
    """The rule, in which a step is what `xsp compare` calls the model; XspError where it is none."""
    bare = text.strip()
    as_model = f"{_MODEL}{bare.removeprefix(_STEP)}" if bare.startswith(_STEP) else bare
    return replace(compare_rules.parse(as_model), text=text)


def judge(
    store: Store, runs: Sequence[tuple[pl.DataFrame, str]], rules: Sequence[Rule], until: datetime | None = None
) -> Judged:
    """What rules say of these captures of a run, by the runs of their series up to that time, themselves left out.

    XspError where they are not of one series, or a rule is on what no run has.
    """
    earlier, missing = _earlier(store, runs, until)
    held = hold(store.of(earlier), [rows for rows, _ in runs]) if earlier else None
    results = outcomes(held, rules) if held else []
    verdicts = {outcome.verdict for outcome in results}
    if compare_rules.Verdict.VIOLATED in verdicts:
        return Judged(Verdict.REGRESSED, results, held, len(earlier))
    is_kept = verdicts == {compare_rules.Verdict.KEPT}
    return Judged(Verdict.PASSED if is_kept else Verdict.INCONCLUSIVE, results, held, len(earlier), missing)


def _earlier(store: Store, runs: Sequence[tuple[pl.DataFrame, str]], until: datetime | None) -> tuple[list[str], str]:
    """The runs that these are held against; where there are none, what is there instead."""
    of_runs = [dict(rows.filter(pl.col("section") == "run").select("name", "text").iter_rows()) for rows, _ in runs]
    keys = [{name: each.get(name) for name in SERIES} for each in of_runs]
    if any(key != keys[0] for key in keys):
        raise XspError("these runs are not of one series", advice="Hold captures of the same work against a history")
    if not store.runs():
        return [], "the history holds no run yet"
    facts = store.facts()
    others = facts.filter(~pl.col("run").is_in([identity for _, identity in runs]))
    until_ns = _NEVER_NS if until is None else int(until.timestamp()) * 1_000_000_000
    earlier = earlier_runs(others, keys[0], until_ns, "")
    return earlier, "" if earlier else _nearest(others, keys[0])


def _nearest(others: pl.DataFrame, key: dict[str, str | None]) -> str:
    """What tells the series from that of the history which has most in common with it: a label may be forgotten."""
    series = [dict(zip(SERIES, each, strict=True)) for each in others.select(SERIES).unique(maintain_order=True).rows()]
    sentence = f"of {len(series)} series in the history none is of this run"
    if key in series or not series:
        return "the history holds no other run of this series up to that time"
    nearest = min(series, key=lambda each: sum(each[name] != key[name] for name in SERIES))
    differing = [
        f"{name} is {clean(key[name] or 'not known')} and not {clean(nearest[name] or 'unknown')}"
        for name in SERIES
        if key[name] != nearest[name]
    ]
    return f"{sentence}. Of the nearest it differs in that {', '.join(differing)}; labels say what the trace does not"
