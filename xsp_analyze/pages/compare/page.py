"""A comparison as one HTML page that needs nothing else: no network, and no script to be read."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.pages.compare.chart import chart
from xsp_analyze.pages.compare.sections import PageTable, of_several, parts
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.pages.compare.texts import change, verdict
from xsp_analyze.pages.shell import page_of_html, program_and_version
from xsp_analyze.render.html import table_elements
from xsp_analyze.text.shown import clean
from xsp_analyze.text.table import split_rows
from xsp_analyze.text.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome, Several
    from xsp_analyze.text.table import Table

__all__ = ["page", "page_of_several"]

_ROWS = 100
_ROWS_AT_FIRST = 12
_RULES = "rules"
_MAX_SENTENCES = 14  # of a rule
_KIND = "XSP comparison: what changed, and whether it is more than noise"
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. This page holds all it needs and loads"
    " nothing; its script only follows links and switches colours."
)


def page(c: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """The page: what was compared, the verdict, a waterfall, every table (at most 100 rows each)."""
    title = clean(f"{c.before.name} and {c.after.name}")
    heading = f"{escape(title)}: latency {escape(change(c.latency))} {_verdict(c)}"
    if c.same_content:
        heading = escape(title)
    main = list(_content(c, outcomes))
    return page_of_html(_KIND, title, heading, _links(c, outcomes), main, f"{program_and_version()} {_FOOTER}")


def page_of_several(several: Several) -> str:
    """A table of the models of two batches, then what `page` shows of each, folded."""
    body = list(_section(PageTable("models", "Models", of_several(several))))
    links = [("models", "Models")]
    for number, one in enumerate(several.compared):
        latency = escape(f"latency {change(one.comparison.latency)}")
        identity, name = f"model-{number}", clean(one.name)
        links.append((identity, name))
        body += [f'<details id="{identity}"><summary>{escape(name)}: {latency}</summary>']
        body += [*_content(one.comparison, one.outcomes, f"{identity}-"), "</details>"]
    title = "Two batches compared"
    return page_of_html(_KIND, title, title, links, body, f"{program_and_version()} {_FOOTER}")


def _links(c: Comparison, outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    rules = [(_RULES, "Rules")] if outcomes else []
    return [*rules, *((part.identity, part.label) for part in _in_order(c))]


def _in_order(c: Comparison) -> list[PageTable]:
    """The parts as the page has them: what the difference is made of comes first."""
    every = parts(c, _ROWS)
    return [*(part for part in every if part.waterfall), *(part for part in every if not part.waterfall)]


def _content(c: Comparison, outcomes: Sequence[Outcome], prefix: str = "") -> Iterator[str]:
    """The sentences, the rules and every part, whose ids begin with `prefix`."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences(c))
    yield f'<ul class="short">{lines}</ul>'
    yield from _rules(outcomes, prefix)
    for part in _in_order(c):
        drawn = list(chart(part.waterfall)) if part.waterfall else []
        yield from _section(part, drawn, prefix)


def _verdict(c: Comparison) -> str:
    text = verdict(c.latency)
    return f'<span class="null">({escape(text)})</span>' if text else ""


def _rules(outcomes: Sequence[Outcome], prefix: str) -> Iterator[str]:
    if not outcomes:
        return
    yield f'<section id="{prefix}{_RULES}"><h2>Rules</h2><ul>'
    for outcome in outcomes:
        mark = ' class="failed"' if outcome.verdict == "broken" else ""
        text = "; ".join(outcome.sentences[:_MAX_SENTENCES])
        yield (
            f"<li><span{mark}>{escape(str(outcome.verdict))}</span>: <code>{escape(clean(outcome.rule.text))}</code>"
            f"{' - ' if text else ''}{escape(clean(text))}</li>"
        )
    yield "</ul></section>"


def _rows(shown: Table, heads: Sequence[str], sides: Sequence[str]) -> Iterator[str]:
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(shown.title)}">'
    yield f"{table_elements(shown, heads, sides)}</div>"


def _section(part: PageTable, drawn: Sequence[str] = (), prefix: str = "") -> Iterator[str]:
    shown, identity = part.table, f"{prefix}{part.identity}"
    anchor = f'<a class="anchor" href="#{identity}" aria-label="Link to {escape(shown.title)}">#</a>'
    yield f'<section id="{identity}" aria-labelledby="{identity}-title">'
    yield f'<h2 id="{identity}-title">{escape(shown.title)}{anchor}</h2>'
    yield from drawn
    heads = [' class="n"' if c.is_number else "" for c in shown.columns]
    sides = [' class="n"' if c.is_number else ' class="name open"' for c in shown.columns]
    first, others = split_rows(shown, _ROWS_AT_FIRST)
    yield from _rows(first, heads, sides)
    if others is not None:
        number = count(len(others.rows))
        yield f"<details><summary>Show the other {escape(number)} rows</summary>"
        yield from _rows(replace(others, title=f"{shown.title}, the other rows"), heads, sides)
        yield "</details>"
    yield from (f'<p class="means">{escape(line)}</p>' for line in shown.notes if "--rows" not in line)
    yield "</section>"
