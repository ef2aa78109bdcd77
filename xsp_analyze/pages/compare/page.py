"""A comparison as one HTML page that needs nothing else: no network, and no script to be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.pages.blocks import page_of_html, program_and_version, tone
from xsp_analyze.pages.compare.sections import PageTable, of_several, parts
from xsp_analyze.pages.compare.sentences import change, sentences, verdict, with_sign
from xsp_analyze.render.html import table_elements
from xsp_analyze.text.table import clean, split_rows
from xsp_analyze.text.units import apart, count, cut, duration, with_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.parts import Contribution, Waterfall
    from xsp_analyze.compare.rules import RuleOutcome, Several
    from xsp_analyze.text.table import Table

__all__ = ["chart", "page", "page_of_several"]

# A waterfall as a picture: bars from the latency before to the one after, on a scale that shows the change.

_BARS = 14
_ROW, _LEFT, _WIDE, _RIGHT = 26, 270, 560, 130  # pixels of the chart: a bar's row, names, bars, numbers
_LONGEST = 34
_ROOM = 0.4  # of the range of the change: what the bars of the totals show of themselves
_SQUARE = 9


@dataclass(frozen=True, slots=True)
class _Scale:
    """Nanoseconds to pixels; `from_ns` is at the left end, above 0 where the change alone would not show."""

    from_ns: float
    pixels_per_ns: float

    def x(self, ns: float) -> float:
        return _LEFT + max(ns - self.from_ns, 0.0) * self.pixels_per_ns


def chart(falls: Waterfall) -> Iterator[str]:
    """Each bar begins where the one above it ends; the first and the last are what was and what is."""
    bars = _bars(falls)
    ends = [falls.before_ns]
    for _, _, difference in bars:
        ends.append(ends[-1] + difference)
    scale = _scale(ends)
    rows = [("before", None, scale.from_ns, falls.before_ns, "total"), *_steps(bars, ends)]
    rows.append(("after", None, scale.from_ns, falls.after_ns, "total"))
    across, height = _LEFT + _WIDE + _RIGHT, _ROW * len(rows)
    before, after = apart((falls.before_ns, falls.after_ns), "ns")
    differences = [difference for _, _, difference in bars]
    texts = [before, *map(with_sign, differences, with_total(differences, "ns")), after]
    summary = f"From {before} before to {after} after, by {falls.by.replace('_', ' ')}"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(summary)}">'
    yield (
        f'<svg class="waterfall" viewBox="0 0 {across} {height}" width="{across}" height="{height}"'
        f' role="img" aria-label="{escape(summary)}">'
    )
    for at, (row, text) in enumerate(zip(rows, texts, strict=True)):
        yield from _row(at * _ROW, scale, text, *row)
    yield "</svg></div>"
    if scale.from_ns > 0:
        yield f'<p class="means">The scale begins at {escape(duration(scale.from_ns))}, so that the change shows.</p>'


def _scale(ends: Sequence[int]) -> _Scale:
    """All ends within the width; from 0 unless they are close together far from it."""
    low, high = min(ends), max(ends)
    begin = low - (high - low) * _ROOM
    begin = min(begin, 0.0) if begin < low / 2 else begin
    return _Scale(min(begin, low), _WIDE / ((high - min(begin, low)) or 1))


def _row(
    y: int, scale: _Scale, text: str, name: str, tone_of: str | None, start: float, end: float, kind: str
) -> Iterator[str]:
    left, right = sorted((scale.x(start), scale.x(end)))
    label = escape(cut(clean(name), _LONGEST))
    if tone_of is not None:
        yield f'<rect class="fc-{tone_of}" x="0" y="{y + 8}" width="{_SQUARE}" height="{_SQUARE}" rx="2"></rect>'
    yield f'<text class="ink" x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{label}</text>'
    wide = max(right - left, 1)
    yield f'<rect class="f-{kind}" x="{left:.1f}" y="{y + 5}" width="{wide:.1f}" height="{_ROW - 10}"></rect>'
    if kind == "total" and scale.from_ns > 0:
        yield f'<path class="break" d="M{_LEFT + 8} {y + 3}l-4 10 8 -4 -4 10"></path>'
    yield f'<text class="ink" x="{_LEFT + _WIDE + 8}" y="{y + 17}">{escape(text)}</text>'


def _bars(falls: Waterfall) -> list[tuple[str, str | None, int]]:
    """The parts that changed: name, tone where they are classes of kernels, difference in ns."""
    *named, rest = falls.parts
    shown: list[Contribution] = [part for part in named[:_BARS] if part.difference_ns]
    left = sum(part.difference_ns for part in named[_BARS:])
    bars = [(part.name, tone(part.name) if part.kind == "kernel_class" else None, part.difference_ns) for part in shown]
    bars += [(f"{count(len(named) - _BARS)} other parts", None, left)] if left else []
    return [*bars, (rest.name, None, rest.difference_ns)]


def _steps(
    bars: Sequence[tuple[str, str | None, int]], ends: Sequence[int]
) -> Iterator[tuple[str, str | None, int, int, str]]:
    for (name, tone_of, difference), start in zip(bars, ends, strict=False):
        yield name, tone_of, start, start + difference, "worse" if difference > 0 else "better"


_ROWS = 100
_ROWS_AT_FIRST = 12
_RULES = "rules"
_MAX_SENTENCES = 14  # of a rule
_KIND = "XSP comparison: what changed, and whether it is more than noise"
_FOOTER = (
    "Numbers are shown rounded; a dash stands for what the traces do not say. This page holds all it needs and loads"
    " nothing; its script only follows links and switches colours."
)


def page(c: Comparison, outcomes: Sequence[RuleOutcome] = ()) -> str:
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


def _links(c: Comparison, outcomes: Sequence[RuleOutcome]) -> list[tuple[str, str]]:
    rules = [(_RULES, "Rules")] if outcomes else []
    return [*rules, *((part.identity, part.label) for part in _in_order(c))]


def _in_order(c: Comparison) -> list[PageTable]:
    """The parts as the page has them: what the difference is made of comes first."""
    every = parts(c, _ROWS)
    return [*(part for part in every if part.waterfall), *(part for part in every if not part.waterfall)]


def _content(c: Comparison, outcomes: Sequence[RuleOutcome], prefix: str = "") -> Iterator[str]:
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


def _rules(outcomes: Sequence[RuleOutcome], prefix: str) -> Iterator[str]:
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
