"""A comparison for a terminal, fitted to its width, or as Markdown for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.rules import Verdict
from xsp_analyze.pages.compare.sections import of_several, sections
from xsp_analyze.pages.compare.sentences import change, sentences, verdict
from xsp_analyze.render.markdown import escape_markdown
from xsp_analyze.render.markdown import table_lines as markdown_lines
from xsp_analyze.render.terminal import table_lines, wrap_line
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import plain_spaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome, Several

__all__ = ["markdown", "markdown_of_several", "terminal", "terminal_of_several"]

_MARKS = {
    Verdict.KEPT: "ok",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.VIOLATED: "FAILED",
    Verdict.UNKNOWN: "unknown",
}
_MARK_WIDTH = 14
_IN_SUMMARY = 5


def terminal(
    c: Comparison, outcomes: Sequence[Outcome] = (), *, width: int | None = None, rows: int | None = 10
) -> str:
    """Sentences, tables, and what became of the rules; null width: as wide as needed."""
    lines = [part for line in sentences(c) for part in wrap_line(line, width)]
    for each in sections(c, rows):
        lines += ["", each.title, *table_lines(each, width)]
    if outcomes:
        lines += ["", "Rules", *(part for o in outcomes for line in _rule_lines(o) for part in wrap_line(line, width))]
    return plain_spaces("\n".join(line.rstrip() for line in lines) + "\n")


def terminal_of_several(several: Several, *, width: int | None = None) -> str:
    """One table of models, and what became of the rules of each."""
    shown = of_several(several)
    lines = [shown.title, *table_lines(shown, width)]
    for one in several.compared:
        if one.outcomes:
            lines += ["", f"Rules, {clean(one.name)}"]
            lines += [part for o in one.outcomes for line in _rule_lines(o) for part in wrap_line(line, width)]
    return plain_spaces("\n".join(line.rstrip() for line in lines) + "\n")


def markdown_of_several(several: Several) -> str:
    """The table of models, then the summary of each model of which a rule is broken."""
    shown = of_several(several)
    violated = [c for c in several.compared if any(o.verdict is Verdict.VIOLATED for o in c.outcomes)]
    headline = (
        f"{len(violated)} of {len(several.compared)} models break performance rules" if violated else "Performance"
    )
    lines = [f"### {headline}", "", *markdown_lines(shown), "", *(escape_markdown(line) for line in shown.notes)]
    for one in violated:
        lines += ["", f"#### {escape_markdown(clean(one.name))}", "", markdown(one.comparison, one.outcomes)]
    return "\n".join(lines) + "\n"


def markdown(c: Comparison, outcomes: Sequence[Outcome] = (), *, rows: int | None = _IN_SUMMARY) -> str:
    """A summary for a pull request: the verdict first, tables folded away below it."""
    lines = [f"### {_headline(c, outcomes)}", ""]
    lines += [f"- {escape_markdown(line)}" for line in sentences(c)]
    for outcome in outcomes:
        _, *lines_below = _rule_lines(outcome)
        lines.append(f"- **{_MARKS[outcome.verdict]}** {escape_markdown(outcome.rule.text)}")
        lines += [f"  - {escape_markdown(line.strip())}" for line in lines_below]
    tables = sections(c, rows)
    for first in tables[:1]:
        lines += ["", *markdown_lines(first), *([""] if first.notes else []), *map(escape_markdown, first.notes)]
    for each in tables[1:]:
        lines += ["", f"<details><summary>{escape_markdown(each.title)}</summary>", "", *markdown_lines(each), ""]
        lines += [*map(escape_markdown, each.notes), "</details>"]
    return "\n".join(lines) + "\n"


def _headline(c: Comparison, outcomes: Sequence[Outcome]) -> str:
    violated = sum(o.verdict is Verdict.VIOLATED for o in outcomes)
    undecided = sum(o.verdict in {Verdict.INCONCLUSIVE, Verdict.UNKNOWN} for o in outcomes)
    text = "Performance rules kept"
    if violated or undecided:
        count, what = (violated, "broken") if violated else (undecided, "inconclusive")
        text = f"{count} of {len(outcomes)} performance rules {what}"
    latency = (
        "no difference"
        if c.same_content
        else ", ".join(filter(None, (f"latency {change(c.latency)}", verdict(c.latency))))
    )
    return escape_markdown(f"{text}: {latency}" if outcomes else f"Performance: {latency}")


def _rule_lines(outcome: Outcome) -> list[str]:
    mark = _MARKS[outcome.verdict]
    more = len(outcome.sentences) - _IN_SUMMARY
    lines = [f"{mark:{_MARK_WIDTH}}{outcome.rule.text}"]
    lines += [f"{'':{_MARK_WIDTH}}{clean(sentence)}" for sentence in outcome.sentences[:_IN_SUMMARY]]
    return [*lines, f"{'':{_MARK_WIDTH}}and {more} more"] if more > 0 else lines
