"""A comparison for a terminal, fitted to its width, or as Markdown for a pull request."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from xsp_analyze.compare.rules import Verdict
from xsp_analyze.compare.several import section
from xsp_analyze.pages.compare.sections import change, sections, sentences
from xsp_analyze.render.shown import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome
    from xsp_analyze.compare.several import Several
    from xsp_analyze.pages.compare.sections import Section

__all__ = ["markdown", "markdown_of_several", "terminal", "terminal_of_several"]

_GAP = 2
_LEAST = 24
_SPARE = ("most of it in", "first in", "difference", "95 % interval", "places")  # columns, in the order they give way
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")
_MARKS = {Verdict.KEPT: "ok", Verdict.NOISE: "ok", Verdict.BROKEN: "FAILED", Verdict.UNKNOWN: "unknown"}
_IN_SUMMARY = 5


def terminal(
    c: Comparison, outcomes: Sequence[Outcome] = (), *, width: int | None = None, rows: int | None = 10
) -> str:
    """Sentences, tables, and what became of the rules; null width: as wide as needed."""
    lines = [part for line in sentences(c) for part in _wrapped(line, width)]
    for each in sections(c, rows):
        lines += ["", each.title, *_table(each, width)]
        lines += [part for line in each.below for part in _wrapped(line, width)]
    if outcomes:
        lines += ["", "Rules", *(part for o in outcomes for line in _told(o) for part in _wrapped(line, width))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def terminal_of_several(found: Several, *, width: int | None = None) -> str:
    """One table of models, and what became of the rules of each."""
    shown = section(found)
    lines = [shown.title, *_table(shown, width), *(part for line in shown.below for part in _wrapped(line, width))]
    for one in found.compared:
        if one.outcomes:
            lines += ["", f"Rules, {clean(one.name)}"]
            lines += [part for o in one.outcomes for line in _told(o) for part in _wrapped(line, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown_of_several(found: Several) -> str:
    """The table of models, then the summary of each model of which a rule is broken."""
    shown = section(found)
    broken = [c for c in found.compared if any(o.verdict is Verdict.BROKEN for o in c.outcomes)]
    told = f"{len(broken)} of {len(found.compared)} models break performance rules" if broken else "Performance"
    lines = [f"### {told}", "", *_markdown_table(shown), "", *(_escaped(line) for line in shown.below)]
    for one in broken:
        lines += ["", f"#### {_escaped(clean(one.name))}", "", markdown(one.comparison, one.outcomes)]
    return "\n".join(lines) + "\n"


def markdown(c: Comparison, outcomes: Sequence[Outcome] = (), *, rows: int | None = _IN_SUMMARY) -> str:
    """A summary for a pull request: the verdict first, tables folded away below it."""
    lines = [f"### {_headline(c, outcomes)}", ""]
    lines += [f"- {_escaped(line)}" for line in sentences(c)]
    for outcome in outcomes:
        _, *told = _told(outcome)
        lines.append(f"- **{_MARKS[outcome.verdict]}** {_escaped(outcome.rule.text)}")
        lines += [f"  - {_escaped(line.strip())}" for line in told]
    first, *rest = sections(c, rows)
    lines += ["", *_markdown_table(first), *([""] if first.below else []), *map(_escaped, first.below)]
    for each in rest:
        lines += ["", f"<details><summary>{_escaped(each.title)}</summary>", "", *_markdown_table(each), ""]
        lines += [*map(_escaped, each.below), "</details>"]
    return "\n".join(lines) + "\n"


def _headline(c: Comparison, outcomes: Sequence[Outcome]) -> str:
    broken = sum(o.verdict is Verdict.BROKEN for o in outcomes)
    told = f"{broken} of {len(outcomes)} performance rules broken" if broken else "Performance rules kept"
    row = c.latency
    noise = "" if row.significant is None else ", significant" if row.significant else ", within noise"
    latency = f"latency {change(row)}{noise}"
    return _escaped(f"{told}: {latency}" if outcomes else f"Performance: {latency}")


def _told(outcome: Outcome) -> list[str]:
    mark = _MARKS[outcome.verdict]
    more = len(outcome.sentences) - _IN_SUMMARY
    lines = [f"{mark:8}{outcome.rule.text}"]
    lines += [f"        {clean(sentence)}" for sentence in outcome.sentences[:_IN_SUMMARY]]
    return [*lines, f"        and {more} more"] if more > 0 else lines


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None or cell_len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) or 8)
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def _table(section: Section, width: int | None) -> Iterator[str]:
    columns = [[h, *cells] for h, *cells in zip(section.headings, *section.rows, strict=True)]
    kept = [i for i, cells in enumerate(columns) if any(cells[1:])]
    widths = {i: max(cell_len(cell) for cell in columns[i]) for i in kept}
    if width is not None:
        _narrow(widths, section, width)
    left = [section.headings[i] for i in kept if i not in widths]
    for row in (section.headings, *section.rows):
        cells = [_padded(row[i], widths[i], right=section.is_number[i]) for i in widths]
        yield (" " * _GAP).join(cells).rstrip()
        if row is section.headings:
            yield "\u2500" * (sum(widths.values()) + _GAP * (len(widths) - 1))
    if left and width is not None:
        yield from _wrapped(f"Too narrow for: {', '.join(left)}. Widen the window, or use -f json.", width)


def _narrow(widths: dict[int, int], section: Section, width: int) -> None:
    """Cuts text, the widest first, to what can still be read; where that does not do, leaves out columns."""

    def over() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - width

    def cut(least: int) -> None:
        text = [i for i in widths if not section.is_number[i]]
        while over() > 0 and any(widths[i] > least for i in text):
            widths[max(text, key=lambda i: widths[i])] -= 1

    cut(_LEAST)
    for word in _SPARE:
        found = [i for i in widths if section.headings[i].startswith(word)]
        if over() > 0 and found:
            del widths[found[0]]
    cut(1)


def _padded(text: str, width: int, *, right: bool) -> str:
    if cell_len(text) > width:
        tail = width // 3
        text = f"{set_cell_size(text, width - tail - 1)}\u2026{text[-tail:]}"
    blank = " " * (width - cell_len(text))
    return blank + text if right else text + blank


def _markdown_table(section: Section) -> list[str]:
    kept = [i for i in range(len(section.headings)) if any(row[i] for row in section.rows)]
    rules = ["---:" if section.is_number[i] else "---" for i in kept]
    rows = [[_escaped(row[i]) for i in kept] for row in (section.headings, *section.rows)]
    return [f"| {' | '.join(cells)} |" for cells in (rows[0], rules, *rows[1:])]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
