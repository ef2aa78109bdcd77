"""A waterfall as a picture: bars from the latency before to the one after, on a scale that shows the change."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from xsp_analyze.pages.compare.texts import with_sign
from xsp_analyze.pages.tones import tone
from xsp_analyze.text.names import cut
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import apart, count, duration, with_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.compare.parts import Contribution, Waterfall

__all__ = ["chart"]

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
