"""A comparison as one HTML page that needs nothing else: no network, and no script to be read."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.pages.compare.sections import WATERFALL, Part, of_several, parts
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.pages.compare.words import change, signed_duration, verdict
from xsp_analyze.pages.shell import made_by, written
from xsp_analyze.render.html import marked_up
from xsp_analyze.render.names import cut
from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome
    from xsp_analyze.compare.several import Several
    from xsp_analyze.compare.waterfall import Part as WaterfallPart
    from xsp_analyze.compare.waterfall import Waterfall

__all__ = ["page", "page_of_several"]

_ROWS = 100
_RULES = "rules"
_BARS = 14
_ROW, _LEFT, _WIDE, _RIGHT = 26, 270, 560, 130  # pixels of the chart: a bar's row, names, bars, numbers
_LONGEST = 34
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
    return written(_KIND, title, heading, _links(c, outcomes), main, f"{made_by()} {_FOOTER}")


def page_of_several(several: Several) -> str:
    """A table of the models of two batches, then what `page` shows of each, folded."""
    body = list(_section(Part("models", "Models", of_several(several))))
    links = [("models", "Models")]
    for number, one in enumerate(several.compared):
        latency = escape(f"latency {change(one.comparison.latency)}")
        identity, name = f"model-{number}", clean(one.name)
        links.append((identity, name))
        body += [f'<details id="{identity}"><summary>{escape(name)}: {latency}</summary>']
        body += [*_content(one.comparison, one.outcomes, f"{identity}-"), "</details>"]
    title = "Two batches compared"
    return written(_KIND, title, title, links, body, f"{made_by()} {_FOOTER}")


def _links(c: Comparison, outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    rules = [(_RULES, "Rules")] if outcomes else []
    return [*rules, *((part.identity, part.label) for part in parts(c, _ROWS))]


def _content(c: Comparison, outcomes: Sequence[Outcome], prefix: str = "") -> Iterator[str]:
    """The sentences, the rules and every part, whose ids begin with `prefix`."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences(c))
    yield f'<ul class="short">{lines}</ul>'
    yield from _rules(outcomes, prefix)
    for part in parts(c, _ROWS):
        chart = list(_chart(c.waterfall)) if c.waterfall and part.identity == WATERFALL else []
        yield from _section(part, chart, prefix)


def _verdict(c: Comparison) -> str:
    text = verdict(c.latency)
    return f'<span class="null">({escape(text)})</span>' if text else ""


def _rules(outcomes: Sequence[Outcome], prefix: str) -> Iterator[str]:
    if not outcomes:
        return
    yield f'<section id="{prefix}{_RULES}"><h2>Rules</h2><ul>'
    for outcome in outcomes:
        mark = ' class="failed"' if outcome.verdict == "broken" else ""
        text = "; ".join(outcome.sentences[:_BARS])
        yield (
            f"<li><span{mark}>{escape(str(outcome.verdict))}</span>: <code>{escape(clean(outcome.rule.text))}</code>"
            f"{' - ' if text else ''}{escape(clean(text))}</li>"
        )
    yield "</ul></section>"


def _section(part: Part, chart: Sequence[str] = (), prefix: str = "") -> Iterator[str]:
    shown, identity = part.table, f"{prefix}{part.identity}"
    anchor = f'<a class="anchor" href="#{identity}" aria-label="Link to {escape(shown.title)}">#</a>'
    yield f'<section id="{identity}" aria-labelledby="{identity}-title">'
    yield f'<h2 id="{identity}-title">{escape(shown.title)}{anchor}</h2>'
    yield from chart
    heads = [' class="n"' if c.is_number else "" for c in shown.columns]
    sides = [' class="n"' if c.is_number else ' class="name open"' for c in shown.columns]
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(shown.title)}">'
    yield f"{marked_up(shown, heads, sides)}</div>"
    yield from (f'<p class="means">{escape(line)}</p>' for line in shown.notes if "--rows" not in line)
    yield "</section>"


def _chart(falls: Waterfall) -> Iterator[str]:
    """Bars from the latency before to the one after: each begins where the one above it ends."""
    bars = _bars(falls)
    ends = [falls.before_ns]
    for _, difference in bars:
        ends.append(ends[-1] + difference)
    low, high = min(0, *ends), max(0, *ends)
    scale = _WIDE / ((high - low) or 1)
    height = _ROW * (len(bars) + 2)
    summary = f"From {duration(falls.before_ns)} before to {duration(falls.after_ns)} after"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(summary)}">'
    across = _LEFT + _WIDE + _RIGHT
    yield (
        f'<svg class="waterfall" viewBox="0 0 {across} {height}" width="{across}" height="{height}"'
        f' role="img" aria-label="{escape(summary)}">'
    )
    rows = [("before", 0, falls.before_ns, "total"), *_steps(bars, ends), ("after", 0, falls.after_ns, "total")]
    for at, (name, start, end, kind) in enumerate(rows):
        x, wide = _LEFT + (min(start, end) - low) * scale, max(abs(end - start) * scale, 1)
        text = duration(end) if kind == "total" else signed_duration(end - start)
        y = at * _ROW
        label = escape(cut(clean(name), _LONGEST))
        yield f'<text class="ink" x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{label}</text>'
        yield f'<rect class="f-{kind}" x="{x:.1f}" y="{y + 5}" width="{wide:.1f}" height="{_ROW - 10}"></rect>'
        yield f'<text class="ink" x="{_LEFT + _WIDE + 8}" y="{y + 17}">{escape(text)}</text>'
    yield "</svg></div>"


def _bars(falls: Waterfall) -> list[tuple[str, int]]:
    *named, rest = falls.parts
    shown: list[WaterfallPart] = [part for part in named[:_BARS] if part.difference_ns]
    left = sum(part.difference_ns for part in named[_BARS:])
    bars = [(part.name, part.difference_ns) for part in shown]
    bars += [(f"{len(named) - _BARS:,} other parts", left)] if left else []
    return [*bars, (rest.name, rest.difference_ns)]


def _steps(bars: Sequence[tuple[str, int]], ends: Sequence[int]) -> Iterator[tuple[str, int, int, str]]:
    for (name, difference), start in zip(bars, ends, strict=False):
        yield name, start, start + difference, "worse" if difference > 0 else "better"
